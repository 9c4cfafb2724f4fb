package org.apache.spark.scheduler.headroom

import org.apache.spark.{ExceptionFailure, SparkException}
import org.apache.spark.scheduler.ExecutorExited

/**
 * The end of an executor, with the verdict of its node. `memory` is the dimension that ran out, if
 * memory was the reason.
 */
private[headroom] class ContainerLost(
    val memory: Option[MemoryDimension],
    code: Int,
    causedByApp: Boolean,
    sentence: String)
    extends ExecutorExited(code, causedByApp, sentence)

/** A memory failure of a task that does not count towards `spark.task.maxFailures`. */
private[headroom] class UncountedFailure(failure: ExceptionFailure, sentence: String)
    extends ExceptionFailure(
      failure.className,
      sentence,
      failure.stackTrace,
      failure.fullStackTrace,
      None,
      failure.accumUpdates,
      failure.accums,
      failure.metricPeaks) {

  override def countTowardsTaskFailures: Boolean = false
}

private[headroom] object MemoryFailure {

  private val HeapExitCodes = Set(3, 52)

  /** The dimension that ran out according to the exception of a task, if any. */
  def dimensionOf(failure: ExceptionFailure, offHeapExecution: Boolean): Option[MemoryDimension] =
    failure.className match {
      case "java.lang.OutOfMemoryError" => Some(MemoryDimension.Heap)
      case "org.apache.spark.memory.SparkOutOfMemoryError" =>
        Some(if (offHeapExecution) MemoryDimension.OffHeap else MemoryDimension.Heap)
      case _ => None
    }

  /** True if the executor ends after this exception. */
  def isFatal(failure: ExceptionFailure): Boolean =
    failure.className == "java.lang.OutOfMemoryError"

  /** True if the executor did not start the task, because it is about to exit. */
  def isRejected(failure: ExceptionFailure): Boolean =
    failure.className == "java.util.concurrent.RejectedExecutionException"

  /** True if a Python worker ended without an exception of its own. */
  def isPythonCrash(failure: ExceptionFailure): Boolean =
    failure.className == classOf[SparkException].getName &&
      failure.description != null &&
      failure.description.contains("Python worker exited unexpectedly")

  /**
   * The loss of an executor as Spark sees it, from the report of the node. `retried` is false in the
   * mode that leaves memory failures to Spark: then they count towards `spark.task.maxFailures`.
   */
  def lossOf(
      executor: String,
      size: ExecutorSize,
      end: ContainerEnd,
      retried: Boolean): ContainerLost = {
    val memory = memoryDimension(end)
    val sentence = describe(executor, size, end, memory)
    // Of the others, only an end that the program chose itself counts.
    val causedByApp = end.reason match {
      case _ if memory.isDefined => !retried
      case "exit" => !end.exitCode.contains(0)
      case "signal" | "timeout" => true
      case _ => false
    }
    new ContainerLost(memory, exitStatus(end), causedByApp, sentence)
  }

  private def memoryDimension(end: ContainerEnd): Option[MemoryDimension] = end.reason match {
    case "heap_oom" => Some(MemoryDimension.Heap)
    case "overhead_oom" | "task_oom" | "stalled_at_limit" => Some(MemoryDimension.Overhead)
    case "exit" if end.exitCode.exists(HeapExitCodes) => Some(MemoryDimension.Heap)
    case _ => None
  }

  private def exitStatus(end: ContainerEnd): Int =
    end.exitCode.orElse(end.signal.map(128 + _)).getOrElse(-1)

  private def describe(
      executor: String,
      size: ExecutorSize,
      end: ContainerEnd,
      memory: Option[MemoryDimension]): String = {
    val measured = Seq(
      end.peak.map(bytes => s"largest use ${bytes >> 20} MiB"),
      end.limit.map(bytes => s"limit ${bytes >> 20} MiB"),
      end.heapUsed.map(bytes => s"heap in use ${bytes >> 20} MiB")).flatten
    val details = if (measured.isEmpty) "" else measured.mkString(" (", ", ", ")")
    val verdict = memory match {
      case Some(dimension) =>
        s"ran out of ${dimension.name} memory with $size$details"
      case None => endInWords(end)
    }
    val cure = Seq(end.cause.filter(_ => memory.isDefined), end.fix.filter(_ => memory.isDefined)).flatten
    (s"executor $executor (container ${end.container} on ${end.node}) $verdict" +: cure).mkString("; ")
  }

  private def endInWords(end: ContainerEnd): String = end.reason match {
    case "preempted" => "was preempted for the guarantee of another queue"
    case "node_lost" => "was lost with its node"
    case "node_oom" => "was killed because the host ran out of memory; the application is not charged"
    case "ancestor_oom" => "was killed for an outer limit; the application is not charged"
    case "killed_externally" => "was killed from outside: SIGKILL, and no memory counter moved"
    case "stopped" => "was stopped on request"
    case "launch_failed" => s"could not start: ${end.cause.getOrElse(lastLine(end.logTail))}"
    case "timeout" => "exceeded its run time"
    case "exit" =>
      s"exited with code ${end.exitCode.getOrElse("?")}: ${lastLine(end.logTail)}"
    case "signal" => s"ended by signal ${end.signal.getOrElse("?")}"
    case other => s"ended: $other"
  }

  private def lastLine(text: String): String =
    text.split("\n").reverseIterator.map(_.trim).find(_.nonEmpty).getOrElse("no output")
}
