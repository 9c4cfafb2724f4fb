package org.apache.spark.scheduler.headroom

import scala.collection.mutable

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.{ExceptionFailure, ExecutorLostFailure, Success, TaskKilled}
import org.apache.spark.scheduler._
import org.apache.spark.scheduler.headroom.ResourceManagerClient.objectOf

/**
 * Stages, tasks and rungs of the application as rows for the resource manager, so that `rmctl` and
 * the page show a Spark application like any other job. A stage is named `stage-N`.
 *
 * Rows of tasks that succeeded at their first attempt become counts when there are many.
 */
private[headroom] final class JobView(settings: Settings, json: ObjectMapper)
    extends SparkListener with RungListener {

  import JobView._

  // All below is guarded by this object; no method of Spark is called while it is held.
  private val tasks = mutable.LinkedHashMap.empty[StagePartition, TaskRow]
  private val running = mutable.HashMap.empty[Long, (TaskRow, AttemptRow)]
  private val containers = mutable.HashMap.empty[String, (String, String)]
  private val ends = mutable.LinkedHashMap.empty[String, (ContainerEnd, ContainerLost)]
  // Attempts that ran out of memory, by Spark's task id; its event of their end may come later.
  private val charges = mutable.LinkedHashMap.empty[Long, Charge]
  private val dirty = mutable.LinkedHashSet.empty[StagePartition]
  private val newlyFolded = mutable.LinkedHashSet.empty[StagePartition]
  private val foldedByStage = mutable.LinkedHashMap.empty[Int, Int]
  private var plannedTasks = 0
  private val events = mutable.ArrayBuffer.empty[JsonNode]
  private val enlarged = mutable.LinkedHashMap.empty[String, EnlargedTask]
  private val newlyEnlarged = mutable.LinkedHashSet.empty[String]
  private var foldedEscalated = 0
  private var changed = true
  private var doneTasks = 0
  private var failedTasks = 0
  private var memoryKills = 0
  private var collateral = 0
  private var uncharged = 0
  private var rerunByteMs = BigInt(0)
  private var allocatedByteMs = BigInt(0)
  private var failure: Option[String] = None
  private var touch: () => Unit = () => ()

  def start(application: String, touch: () => Unit): Unit = synchronized {
    this.touch = touch
    logicalName = application
  }

  private var logicalName = ""

  /** The result of the application, for its diagnostics. */
  def summary: String = synchronized {
    failure.getOrElse(
      s"$doneTasks tasks done, $failedTasks failed, $memoryKills memory failures, " +
        s"${tasks.values.count(_.rung > 1) + foldedEscalated} tasks with more memory")
  }

  def failed(sentence: String): Unit = synchronized { failure = Some(sentence) }

  def granted(executor: String, container: String, node: String): Unit = synchronized {
    containers(executor) = (container, node)
  }

  /** The report of a node on an executor, before Spark hears of the loss. */
  def lost(executor: String, end: ContainerEnd, loss: ContainerLost): Unit = synchronized {
    ends(executor) = (end, loss)
    if (ends.size > MostEnds) ends.remove(ends.head._1)
    // Attempts that failed with an exception before the report came.
    tasks.values.foreach { task =>
      task.attempts.filter(a => a.executor == executor && a.awaitsEvidence).foreach { attempt =>
        attempt.end = Some(end)
        dirty += task.id
      }
    }
    if (loss.memory.isDefined) {
      event("warning", "OomKilled", end.container, loss.message)
      touch()
    }
    changed = true
  }

  // ---- rungs

  override def raised(
      task: StagePartition,
      attempt: Long,
      rung: Rung,
      dimension: MemoryDimension,
      sentence: String): Unit = synchronized {
    val row = rowOf(task)
    row.rung = rung.number
    row.size = rung.executor
    row.cpus = rung.cpus
    outOfMemory(row, attempt, dimension, sentence)
    event("warning", "Escalated", name(task), sentence)
    mark(row)
    touch()
  }

  override def exhausted(
      task: StagePartition,
      attempt: Long,
      dimension: MemoryDimension,
      sentence: String): Unit = synchronized {
    val row = rowOf(task)
    row.note = sentence
    outOfMemory(row, attempt, dimension, sentence)
    event("warning", "EscalationExhausted", name(task), sentence)
    mark(row)
    touch()
  }

  /**
   * Charges an attempt. Spark's event of its end may have come before: a Python worker is reported
   * as crashed, and the report of the node on its container follows.
   */
  private def outOfMemory(
      row: TaskRow,
      tid: Long,
      dimension: MemoryDimension,
      sentence: String): Unit = {
    row.memory = Some(dimension)
    val charge = Charge(dimension, sentence)
    charges(tid) = charge
    if (charges.size > MostEnds) charges.remove(charges.head._1)
    row.attempts.find(_.taskId == tid).foreach { attempt =>
      attempt.decision = sentence
      if (attempt.crashed) markOutOfMemory(attempt, charge)
    }
  }

  /** Turns the crash of a Python worker into a memory failure. */
  private def markOutOfMemory(attempt: AttemptRow, charge: Charge): Unit = {
    attempt.memory = Some(charge.dimension)
    ends.get(attempt.executor).foreach { case (end, _) =>
      attempt.end = Some(end)
      attempt.reason = Some(end.report.get("reason"))
    }
    memoryKills += 1
  }

  override def recalled(task: StagePartition, rung: Rung): Unit = synchronized {
    val row = rowOf(task)
    row.rung = rung.number
    row.size = rung.executor
    row.cpus = rung.cpus
    mark(row)
  }

  override def learned(name: String, rung: Rung): Unit = synchronized {
    val task = LearnedSizes.enlarged(name, rung, settings.executor)
    if (!enlarged.get(name).contains(task)) {
      enlarged.remove(name)
      enlarged(name) = task
      newlyEnlarged += name
      if (enlarged.size > MostEnlarged) enlarged.remove(enlarged.head._1)
      changed = true
    }
  }

  // ---- events of Spark

  override def onStageSubmitted(event: SparkListenerStageSubmitted): Unit = synchronized {
    if (event.stageInfo.attemptNumber() == 0) plannedTasks += event.stageInfo.numTasks
    changed = true
  }

  override def onTaskStart(event: SparkListenerTaskStart): Unit = synchronized {
    val info = event.taskInfo
    val task = StagePartition(event.stageId, partitionOf(info))
    val row = rowOf(task)
    val attempt = new AttemptRow(
      row.attempts.size + 1,
      info.executorId,
      Rung(row.rung, row.cpus, row.size),
      info.taskId,
      info.launchTime)
    containers.get(info.executorId).foreach { case (container, node) =>
      attempt.container = container
      attempt.node = node
    }
    row.attempts += attempt
    if (row.state == "done") doneTasks -= 1
    // Its stage failed for lost map outputs, and runs again.
    if (row.state == "failed") failedTasks -= 1
    row.state = "running"
    running(info.taskId) = (row, attempt)
    mark(row)
  }

  override def onTaskEnd(event: SparkListenerTaskEnd): Unit = synchronized {
    running.remove(event.taskInfo.taskId).foreach { case (row, attempt) =>
      attempt.endedMs = Some(event.taskInfo.finishTime)
      charges.get(attempt.taskId).foreach(charge => attempt.decision = charge.sentence)
      val byteMs = BigInt(shareOf(attempt) << 20) *
        math.max(0L, event.taskInfo.finishTime - attempt.startedMs)
      allocatedByteMs += byteMs
      event.reason match {
        case Success =>
          attempt.reason = Some(exit(0))
          if (row.state != "done") doneTasks += 1
          row.state = "done"
          row.note = ""
        case reason =>
          rerunByteMs += byteMs
          if (row.state != "done") row.state = "pending"
          judge(row, attempt, reason)
      }
      mark(row)
      fold(row)
    }
  }

  private def judge(
      row: TaskRow,
      attempt: AttemptRow,
      reason: org.apache.spark.TaskEndReason): Unit = reason match {
    case failure: ExceptionFailure
        if MemoryFailure.dimensionOf(failure, settings.executor.offHeap > 0).isDefined =>
      attempt.memory = MemoryFailure.dimensionOf(failure, settings.executor.offHeap > 0)
      attempt.reason = Some(objectOf(json, "kind" -> "heap_oom"))
      attempt.end = ends.get(attempt.executor).map(_._1)
      memoryKills += 1
      row.note = failure.description
    case failure: ExceptionFailure =>
      attempt.reason = Some(exit(1))
      attempt.logTail = Option(failure.fullStackTrace).getOrElse("").take(2000)
      row.note = Option(failure.description).getOrElse(failure.className)
      charges.get(attempt.taskId).foreach(markOutOfMemory(attempt, _))
    case lost: ExecutorLostFailure =>
      ends.get(attempt.executor) match {
        case Some((end, loss)) =>
          attempt.end = Some(end)
          attempt.reason = Some(end.report.get("reason"))
          attempt.memory = loss.memory
          if (loss.memory.isDefined && row.memory.isEmpty) {
            attempt.memory = None
            attempt.reason = Some(objectOf(json, "kind" -> "stopped"))
            attempt.decision = "ran on the executor of a task that ran out of memory; runs again " +
              "with the same size, not charged"
            collateral += 1
          } else if (loss.memory.isDefined) memoryKills += 1
          else uncharged += 1
          row.note = loss.message
        case None =>
          attempt.reason = Some(objectOf(json, "kind" -> "node_lost"))
          row.note = lost.reason.getOrElse("the executor was lost")
          uncharged += 1
      }
    case killed: TaskKilled =>
      attempt.reason = Some(objectOf(json, "kind" -> "stopped"))
      row.note = killed.reason
    case other =>
      attempt.reason = Some(exit(1))
      row.note = other.toString.take(300)
  }

  override def onStageCompleted(event: SparkListenerStageCompleted): Unit = {
    val info = event.stageInfo
    synchronized {
      info.failureReason.foreach { reason =>
        tasks.values.filter(row => row.id.stage == info.stageId && row.state == "pending")
          .foreach { row =>
            if (row.attempts.nonEmpty && row.state != "failed") {
              row.state = "failed"
              failedTasks += 1
              if (row.note.isEmpty) row.note = reason.take(300)
              mark(row)
            }
          }
      }
    }
  }

  override def onApplicationEnd(event: SparkListenerApplicationEnd): Unit = synchronized {
    changed = true
  }

  // ---- rows

  private def partitionOf(info: TaskInfo): Int =
    if (info.partitionId >= 0) info.partitionId else info.index

  private def rowOf(task: StagePartition): TaskRow =
    tasks.getOrElseUpdate(task, new TaskRow(task, settings))

  private def mark(row: TaskRow): Unit = {
    dirty += row.id
    changed = true
  }

  /** Turns the oldest rows of tasks without failures into counts. */
  private def fold(last: TaskRow): Unit = if (tasks.size > MostRows) {
    tasks.values.find(row => row.state == "done" && row.attempts.size == 1)
      .foreach { row =>
        if (row.rung > 1) foldedEscalated += 1
        tasks.remove(row.id)
        dirty -= row.id
        if (row.sent) newlyFolded += row.id
        foldedByStage(row.id.stage) = foldedByStage.getOrElse(row.id.stage, 0) + 1
        // A stream has ever more stages: the oldest are one count.
        if (foldedByStage.size > MostStages) {
          val (oldest, count) = foldedByStage.find(_._1 != EarlierStages).get
          foldedByStage.remove(oldest)
          foldedByStage(EarlierStages) = foldedByStage.getOrElse(EarlierStages, 0) + count
        }
      }
  }

  private def event(level: String, reason: String, subject: String, message: String): Unit =
    if (events.size < MostEvents) {
      events += objectOf(
        json,
        "time" -> System.currentTimeMillis(),
        "level" -> level,
        "reason" -> reason,
        "object" -> subject,
        "message" -> message)
    }

  /** The changes since the last call, or all rows; `None` without changes. */
  def patch(full: Boolean): Option[JsonNode] = synchronized {
    if (!changed && !full) None
    else {
      val rows = if (full) tasks.values.toSeq else dirty.toSeq.flatMap(tasks.get)
      val body = objectOf(
        json,
        "full" -> full,
        "totals" -> totals,
        "tasks" -> rows.map(rowJson),
        "folded" -> (if (full) Nil else newlyFolded.toSeq.map(name)),
        "events" -> events.toSeq,
        "enlarged" -> (if (full) enlarged.keys.toSeq else newlyEnlarged.toSeq)
          .flatMap(enlarged.get).map(LearnedSizes.toJson(json, _)))
      rows.foreach(_.sent = true)
      dirty.clear()
      newlyFolded.clear()
      newlyEnlarged.clear()
      events.clear()
      changed = false
      Some(body)
    }
  }

  private def totals: Map[String, Any] = Map(
    "mode" -> (settings.mode match {
      case MemoryFailureMode.Off => "fixed"
      case mode => mode.name
    }),
    "tasks" -> math.max(plannedTasks, doneTasks + failedTasks + running.size),
    "done" -> doneTasks,
    "failed" -> failedTasks,
    "running" -> running.size,
    "memory_kills" -> memoryKills,
    "collateral_reruns" -> collateral,
    "transient" -> uncharged,
    "escalated" -> (tasks.values.count(_.rung > 1) + foldedEscalated),
    "rerun_byte_ms" -> rerunByteMs,
    "allocated_byte_ms" -> allocatedByteMs,
    "folded" -> foldedByStage.toSeq.map { case (stage, done) =>
      val name = if (stage == EarlierStages) "earlier-stages" else s"stage-$stage"
      Map("stage" -> name, "done" -> done)
    })

  private def rowJson(row: TaskRow): JsonNode = objectOf(
    json,
    "task" -> name(row.id),
    "state" -> row.state,
    "profile" -> profile(row.size, row.cpus),
    "rung" -> row.rung,
    "note" -> row.note,
    "attempts" -> row.attempts.map(attemptJson(row, _)))

  private def attemptJson(row: TaskRow, attempt: AttemptRow): JsonNode = objectOf(
    json,
    "attempt" -> s"${name(row.id)}@${attempt.number}",
    "profile" -> profile(attempt.rung.executor, attempt.rung.cpus),
    "slots" -> math.max(1, attempt.rung.cpus / settings.cpusPerTask),
    "rung" -> attempt.rung.number,
    "container" -> attempt.container,
    "node" -> attempt.node,
    "started" -> attempt.startedMs,
    "ended" -> attempt.endedMs,
    "peak" -> attempt.end.filter(_ => attempt.memory.isDefined).flatMap(_.peak),
    "used" -> None,
    "reason" -> attempt.reason,
    "dimension" -> attempt.memory.map {
      case MemoryDimension.Heap => "heap"
      case MemoryDimension.OffHeap | MemoryDimension.Overhead => "overhead"
    },
    "evidence" -> attempt.end.filter(_ => attempt.memory.isDefined)
      .flatMap(end => ResourceManagerClient.field(end.report, "evidence")),
    "diagnosis" -> attempt.end.filter(_ => attempt.memory.isDefined)
      .flatMap(end => ResourceManagerClient.field(end.report, "diagnosis"))
      .getOrElse(json.createArrayNode()),
    "decision" -> attempt.decision,
    // Spark writes it into each line about the attempt in the log of the executor.
    "log_marker" -> s"(TID ${attempt.taskId})",
    "log_tail" -> attempt.end.filter(_ => attempt.memory.isDefined).map(_.logTail)
      .getOrElse(attempt.logTail))

  /** The share of a task in an executor of the configured size; a larger one belongs to one task. */
  private def profile(size: ExecutorSize, cpus: Int): Map[String, Any] = {
    val (part, whole) = if (size == settings.executor) (cpus, size.cores) else (1, 1)
    Map(
      "heap" -> (size.heap << 20) * part / whole,
      "overhead" -> ((size.memory - size.heap) << 20) * part / whole,
      "cpus" -> cpus)
  }

  private def shareOf(attempt: AttemptRow): Long = {
    val size = attempt.rung.executor
    if (size == settings.executor) size.memory * attempt.rung.cpus / size.cores else size.memory
  }

  private def exit(code: Int): JsonNode = objectOf(json, "kind" -> "exit", "code" -> code)

  private def name(task: StagePartition): String = s"stage-${task.stage}/${task.partition}"
}

private[headroom] object JobView {

  /** Rows above this number become counts, if their task had no failure. */
  val MostRows = 5000

  /** Reports of ended executors that are kept for their tasks. */
  private val MostEnds = 1000

  private val MostEvents = 1000

  /** Tasks whose size is kept for the next run of the application. */
  private val MostEnlarged = 1000

  /** Stages with a count of their own. */
  private val MostStages = 500

  /** Key of the sum over all older stages. */
  private val EarlierStages = -1

  /** The dimension that an attempt ran out of, and the next step of its task. */
  private final case class Charge(dimension: MemoryDimension, sentence: String)

  private final class TaskRow(val id: StagePartition, settings: Settings) {
    var state = "pending"
    var rung = 1
    var size: ExecutorSize = settings.executor
    var cpus: Int = settings.cpusPerTask
    var note = ""
    var sent = false
    var memory: Option[MemoryDimension] = None
    val attempts = mutable.ArrayBuffer.empty[AttemptRow]
  }

  private final class AttemptRow(
      val number: Int,
      val executor: String,
      val rung: Rung,
      /** Spark's number of the attempt, unique in the application. */
      val taskId: Long,
      val startedMs: Long) {
    var container = "unknown"
    var node = "unknown"
    var endedMs: Option[Long] = None
    var reason: Option[JsonNode] = None
    var memory: Option[MemoryDimension] = None
    var end: Option[ContainerEnd] = None
    var decision = ""
    var logTail = ""

    def awaitsEvidence: Boolean = memory.isDefined && end.isEmpty

    /** True after an end with an exception that does not speak of memory. */
    def crashed: Boolean = logTail.nonEmpty && memory.isEmpty
  }
}
