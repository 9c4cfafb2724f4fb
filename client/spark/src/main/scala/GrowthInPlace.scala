package org.apache.spark.scheduler.headroom

import java.io.IOException

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.headroom.ResourceManagerClient.{field, objectOf}

/**
 * Grows the overhead of running executors that come near their limit, in place, before the kernel
 * kills them. The heap of a JVM is fixed at its start, so only the rest of the container can grow.
 */
private[headroom] final class GrowthInPlace(
    client: ResourceManagerClient,
    application: () => String,
    containers: () => Map[String, (String, ExecutorSize)])
    extends Logging {

  private val refusedAt = mutable.HashMap.empty[String, Long]

  /** One look at all executors. */
  def check(): Unit = {
    val known = containers()
    refusedAt.keys.filterNot(known.contains).toSeq.foreach(refusedAt.remove)
    if (known.nonEmpty) {
      try {
        client.get(s"/v1/containers?app=${application()}").forEach { row =>
          val container = row.get("id").asText
          for {
            (executor, size) <- known.get(container)
            used <- field(row, "used").map(_.asLong)
            limit <- field(row, "resource", "memory").map(_.asLong)
            next <- GrowthInPlace.nextLimit(size, used, limit)
            if field(row, "wanted").isEmpty && !refusedAt.get(container).contains(limit)
          } grow(executor, container, limit, next, size)
        }
      } catch {
        case error: IOException => logDebug(s"the use of the executors is not known: $error")
      }
    }
  }

  private def grow(
      executor: String,
      container: String,
      limit: Long,
      next: Long,
      size: ExecutorSize): Unit =
    try {
      client.post(
        s"/v1/containers/$container/resize",
        objectOf(
          client.json,
          "resource" -> Map("memory" -> next, "cpus" -> size.cores)))
      logInfo(s"executor $executor is near its limit of ${limit >> 20} MiB: its container grows to " +
        s"${next >> 20} MiB")
    } catch {
      case refused: ManagerRefusal =>
        refusedAt(container) = limit
        logInfo(s"executor $executor is near its limit of ${limit >> 20} MiB and cannot grow: " +
          refused.getMessage)
    }
}

private[headroom] object GrowthInPlace {

  /** Overhead of a grown executor, as a multiple of the requested one. */
  val MostTimes = 4L

  /** The next limit of a container that uses `used` of `limit` bytes; `None` if it has room. */
  def nextLimit(size: ExecutorSize, used: Long, limit: Long): Option[Long] = {
    val fixed = (size.heap + size.offHeap) << 20
    val rest = (size.overhead + size.python) << 20
    val most = fixed + MostTimes * rest
    if (used < limit - limit / 12 || limit >= most) None
    else Some(math.min(most, limit + math.max(rest / 2, 64L << 20)))
  }
}
