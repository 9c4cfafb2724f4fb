package org.apache.spark.scheduler.headroom

import scala.collection.JavaConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.headroom.ResourceManagerClient.{field, objectOf}

/** Names that stages and tasks keep in every run of an application. Pure. */
private[headroom] object StageKind {

  /** Most characters of a call site in a name; the resource manager accepts 300 bytes in all. */
  private val MostSite = 200

  /**
   * The name of a stage: the short call site of its job without directories, the position in the
   * job, and the number of tasks.
   */
  def of(callSite: String, isMap: Boolean, parents: Int, tasks: Int): String = {
    val site = callSite.replaceAll("""\S*[/\\]""", "").map(letter =>
      if (letter >= ' ' && letter < 127) letter else '?')
    val position = if (isMap) "map" else "result"
    s"${site.take(MostSite)}, $position stage after $parents, $tasks tasks"
  }

  /** The name of one task. */
  def taskName(kind: String, partition: Int): String = s"$kind/$partition"
}

/**
 * The memory that a task had when it succeeded above the first rung, MiB: of a whole executor if it
 * was alone there, else its share.
 */
private[headroom] final case class EnlargedTask(
    name: String,
    rung: Int,
    cpus: Int,
    heap: Long,
    offHeap: Long,
    /** Overhead and Python memory. */
    overhead: Long)

/**
 * Sizes that tasks needed in earlier runs of an application, as the resource manager keeps them for
 * its user and name.
 */
private[headroom] object LearnedSizes extends Logging {

  /** What is kept of a task that succeeded on `rung`. */
  def enlarged(name: String, rung: Rung, base: ExecutorSize): EnlargedTask = {
    val size = rung.executor
    val (part, whole) = if (size == base) (rung.cpus, base.cores) else (1, 1)
    def share(mib: Long): Long = mib * part / whole
    EnlargedTask(
      name, rung.number, rung.cpus, share(size.heap), share(size.offHeap),
      share(size.overhead + size.python))
  }

  /**
   * The rung of a task that needs this memory, with the settings of this run; `None` if the
   * configured share of a task is enough, or if no rung of this mode holds it.
   */
  def rungOf(
      task: EnlargedTask,
      base: ExecutorSize,
      cpusPerTask: Int,
      mode: MemoryFailureMode,
      largest: Long): Option[Rung] = {
    def fits(cpus: Int): Boolean = {
      val share = enlarged("", Rung(1, cpus, base), base)
      share.heap >= task.heap && share.overhead >= task.overhead &&
        (base.offHeap == 0 || share.offHeap >= task.offHeap)
    }
    if (mode == MemoryFailureMode.Off || fits(cpusPerTask)) None
    else {
      val wide = (cpusPerTask + 1 to base.cores).find(fits)
      wide match {
        case Some(cpus) => Some(Rung(2, cpus, base))
        case None if mode == MemoryFailureMode.Uber => None
        case None =>
          val size = Seq(
            MemoryDimension.Heap -> task.heap,
            MemoryDimension.OffHeap -> (if (base.offHeap == 0) 0L else task.offHeap),
            MemoryDimension.Overhead -> task.overhead)
            .foldLeft(base.copy(cores = cpusPerTask)) { case (size, (dimension, mib)) =>
              if (mib > size.of(dimension)) size.withMemory(dimension, mib) else size
            }
          // Only the number of processors would differ: such an executor is not larger.
          if (size.memory > largest || size.memory == base.memory) None
          else Some(Rung(math.max(2, task.rung), cpusPerTask, size))
      }
    }
  }

  def toJson(json: ObjectMapper, task: EnlargedTask): JsonNode = objectOf(
    json,
    "name" -> task.name,
    "rung" -> task.rung,
    "cpus" -> task.cpus,
    "memory" -> Map(
      "heap" -> (task.heap << 20),
      "off_heap" -> (task.offHeap << 20),
      "overhead" -> (task.overhead << 20)))

  /** The tasks in the reply to a registration. An entry of another master is ignored. */
  def fromReply(reply: JsonNode): Seq[EnlargedTask] =
    field(reply, "known", "enlarged").toSeq.flatMap(_.elements().asScala).flatMap { entry =>
      def mib(part: String): Option[Long] = field(entry, "memory", part).map(_.asLong >> 20)
      for {
        name <- field(entry, "name").map(_.asText)
        rung <- field(entry, "rung").map(_.asInt)
        cpus <- field(entry, "cpus").map(_.asInt)
        heap <- mib("heap")
        offHeap <- mib("off_heap")
        overhead <- mib("overhead")
      } yield EnlargedTask(name, rung, cpus, heap, offHeap, overhead)
    }
}
