package org.apache.spark.scheduler.headroom

import scala.collection.mutable

/**
 * The executors of the application from request to end, and the target numbers. Not synchronized:
 * its owner holds the lock.
 */
private[headroom] final class ExecutorTable(settings: Settings) {

  import ExecutorTable._

  private val live = mutable.LinkedHashMap.empty[String, Entry]
  private var lastId = 0
  private var wanted = 0
  private var failedStarts = 0

  // Larger executors, and the executor of the configured size that made room for each.
  private val displaced = mutable.HashMap.empty[String, String]

  /** The number of executors of the configured size that Spark wants. */
  def target: Int = wanted

  /** Sets the number of configured executors. Returns the ids to request and to release. */
  def setTarget(total: Int): (Seq[String], Seq[String]) = {
    wanted = total
    val configured = live.values.filter(entry => entry.size == settings.executor && !entry.released)
    val surplus = configured.size - math.max(0, total - displaced.size)
    if (surplus <= 0) {
      (Seq.fill(-surplus)(add(settings.executor)), Nil)
    } else {
      // Only requests that are not granted: Spark names the running executors to end.
      val pending = configured.filter(_.container.isEmpty).toSeq.takeRight(surplus)
      pending.foreach(_.released = true)
      (Nil, pending.map(_.id))
    }
  }

  /** Requests larger executors for waiting tasks. Returns the executors to request. */
  def setDemand(demand: LargeDemand): Seq[(String, ExecutorSize)] = {
    val large = live.values.filter(entry => entry.size != settings.executor && !entry.released).toSeq
    var room = settings.mostLargeExecutors - large.size
    demand.sizes.toSeq.sortBy(_._1.memory).flatMap { case (size, count) =>
      val there = large.count(entry => !entry.registered && entry.size.covers(size))
      val missing = math.max(0, math.min(count - there, room))
      room -= missing
      Seq.fill(missing)((add(size), size))
    }
  }

  /**
   * Makes room for larger executors that wait: one executor of the configured size for each, idle
   * ones at once, the others when their tasks have ended. It is not replaced while the larger one
   * lives.
   */
  def makeRoom(idle: String => Boolean, now: Long): MakeRoom = {
    displaced.filter { case (large, _) => !live.contains(large) }.keys.toSeq
      .foreach(displaced.remove)
    live.values
      .filter(entry => entry.size != settings.executor && !entry.released &&
        entry.container.isEmpty && !displaced.contains(entry.id) &&
        now - entry.requestedAt > WaitBeforeDisplacingMs)
      .toSeq
      .foreach { large =>
        val candidates = live.values.filter(entry => entry.size == settings.executor &&
          entry.registered && !entry.released && !displaced.values.exists(_ == entry.id)).toSeq
        candidates.find(entry => idle(entry.id)).orElse(candidates.headOption)
          .foreach(entry => displaced(large.id) = entry.id)
      }
    val going = displaced.values.flatMap(live.get).filterNot(_.released).map(_.id).toSet
    val (free, busy) = going.partition(idle)
    MakeRoom(release = free.toSeq, drain = busy)
  }

  private def add(size: ExecutorSize): String = {
    lastId += 1
    val id = lastId.toString
    live(id) = new Entry(id, size)
    id
  }

  def granted(id: String, container: String, node: String): Unit = live.get(id).foreach { entry =>
    entry.container = Some(container)
    entry.node = Some(node)
  }

  /** False for an executor that was not requested or is over. */
  def registered(id: String, host: String): Boolean = {
    live.get(id).foreach { entry =>
      entry.registered = true
      entry.host = Some(host)
      entry.idleSince = System.currentTimeMillis()
    }
    live.contains(id)
  }

  def startSucceeded(): Unit = failedStarts = 0

  def startFailed(): Int = {
    failedStarts += 1
    failedStarts
  }

  def releasing(id: String): Unit = live.get(id).foreach(_.released = true)

  def disconnected(id: String, now: Long): Unit =
    live.get(id).foreach(entry => entry.disconnectedAt = Some(entry.disconnectedAt.getOrElse(now)))

  def gone(id: String): Unit = live.remove(id)

  def sizeOf(id: String): ExecutorSize = live.get(id).map(_.size).getOrElse(settings.executor)

  def nodeOf(id: String): Option[String] = live.get(id).flatMap(_.node)

  /** Host of an executor, unless executors of another node registered from the same host. */
  def hostOnlyOf(id: String): Option[String] = live.get(id).flatMap { entry =>
    entry.host.filterNot(host =>
      live.values.exists(other => other.host.contains(host) && other.node != entry.node))
  }

  def isRegistered(id: String): Boolean = live.get(id).exists(_.registered)

  def isReleased(id: String): Boolean = live.get(id).forall(_.released)

  def on(node: String): Seq[String] = live.values.filter(_.node.contains(node)).map(_.id).toSeq

  /** Registered executors of the configured size. */
  def configured: Seq[String] =
    live.values
      .filter(entry => entry.registered && entry.size == settings.executor && !entry.released)
      .map(_.id).toSeq

  /** Registered executors above the configured size. */
  def registeredLarge: Seq[String] =
    live.values
      .filter(entry => entry.registered && entry.size != settings.executor && !entry.released)
      .map(_.id).toSeq

  /** Larger executors without tasks for longer than the timeout; `busy` names those with tasks. */
  def idleLarge(busy: Seq[String], now: Long): Seq[String] = {
    busy.flatMap(live.get).foreach(_.idleSince = now)
    registeredLarge.filter(id => now - live(id).idleSince > settings.largeIdleMs)
  }

  /** Executors that disconnected and have no report of their node in time. */
  def overdue(now: Long): Seq[String] =
    live.values
      .filter(_.disconnectedAt.exists(at => now - at > settings.lossReportMs))
      .map(_.id).toSeq

  /** Running executors with their containers and sizes. */
  def containers: Map[String, (String, ExecutorSize)] =
    live.values.filter(_.registered).flatMap { entry =>
      entry.container.map(container => container -> ((entry.id, entry.size)))
    }.toMap
}

private[headroom] object ExecutorTable {

  /** A larger executor waits this long before an executor of the configured size makes room. */
  val WaitBeforeDisplacingMs = 2000L

  /** Executors to release now, and executors that get no new tasks. */
  final case class MakeRoom(release: Seq[String], drain: Set[String])

  private final class Entry(val id: String, val size: ExecutorSize) {
    val requestedAt: Long = System.currentTimeMillis()
    var container: Option[String] = None
    var node: Option[String] = None
    var host: Option[String] = None
    var registered = false
    var released = false
    var idleSince = 0L
    var disconnectedAt: Option[Long] = None
  }
}
