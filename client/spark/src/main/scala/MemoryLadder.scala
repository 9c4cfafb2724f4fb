package org.apache.spark.scheduler.headroom

/** A part of the memory of an executor that can run out. */
private[headroom] sealed abstract class MemoryDimension(val name: String) extends Serializable

private[headroom] object MemoryDimension {

  /** The Java heap. */
  case object Heap extends MemoryDimension("heap")

  /** Spark's off-heap execution and storage memory (`spark.memory.offHeap.size`). */
  case object OffHeap extends MemoryDimension("off-heap")

  /** Everything else in the container: JVM overhead and Python workers. */
  case object Overhead extends MemoryDimension("overhead")
}

/** Memory of an executor by part, MiB, and its processors. */
private[headroom] final case class ExecutorSize(
    heap: Long,
    offHeap: Long,
    overhead: Long,
    python: Long,
    cores: Int) {

  /** The limit of the container, MiB. */
  def memory: Long = heap + offHeap + overhead + python

  def of(dimension: MemoryDimension): Long = dimension match {
    case MemoryDimension.Heap => heap
    case MemoryDimension.OffHeap => offHeap
    case MemoryDimension.Overhead => overhead + python
  }

  /** The same size with `mib` in one dimension. Overhead and Python memory keep their ratio. */
  def withMemory(dimension: MemoryDimension, mib: Long): ExecutorSize = dimension match {
    case MemoryDimension.Heap => copy(heap = mib)
    case MemoryDimension.OffHeap => copy(offHeap = mib)
    case MemoryDimension.Overhead =>
      val newPython = if (overhead + python == 0) 0 else mib * python / (overhead + python)
      copy(overhead = mib - newPython, python = newPython)
  }

  /** True if a task that needs `other` fits on an executor of this size. */
  def covers(other: ExecutorSize): Boolean =
    heap >= other.heap && offHeap >= other.offHeap &&
      overhead >= other.overhead && python >= other.python

  override def toString: String = {
    val parts = Seq("heap" -> heap, "off-heap" -> offHeap, "overhead" -> overhead, "Python" -> python)
      .collect { case (name, mib) if mib > 0 => s"$name $mib MiB" }
    s"$memory MiB (${parts.mkString(", ")})"
  }
}

/**
 * The size that a task needs: its processors, and the executor that must hold it.
 *
 * Rung 1 is the configured size. On a larger executor a task runs alone: it has no more processors
 * than the task.
 */
private[headroom] final case class Rung(number: Int, cpus: Int, executor: ExecutorSize)

/** The reaction to memory failures, `spark.headroom.memory.mode`. */
private[headroom] sealed abstract class MemoryFailureMode(val name: String)

private[headroom] object MemoryFailureMode {

  /** More of exactly the dimension that ran out, for the failed task only. */
  case object Headroom extends MemoryFailureMode("headroom")

  /** Doubled processors, then executors of 2, 3 and 4 times the size in every dimension. */
  case object Pinterest extends MemoryFailureMode("pinterest")

  /** All tasks of a lost executor get a whole executor; a failure of a task alone is final. */
  case object Uber extends MemoryFailureMode("uber")

  /** Spark's own behaviour: same size, counted by `spark.task.maxFailures`. */
  case object Off extends MemoryFailureMode("off")

  val All: Seq[MemoryFailureMode] = Seq(Headroom, Pinterest, Uber, Off)

  def parse(name: String): Option[MemoryFailureMode] = All.find(_.name == name)
}

/** The next rung after a memory failure. */
private[headroom] sealed trait LadderStep

private[headroom] object LadderStep {

  /** Run the task again on this rung. */
  final case class Next(rung: Rung) extends LadderStep

  /** No larger size exists; the sentence names the limit and the fix. */
  final case class Exhausted(sentence: String) extends LadderStep
}

/**
 * The rungs of a task: configured size, doubled processors, then executors of 2, 3 and 4 times the
 * memory in the dimension that ran out, up to the largest container. Pure.
 *
 * `base` is the configured executor, `cpusPerTask` the configured `spark.task.cpus`, `largest` the
 * largest container of the cluster in MiB.
 */
private[headroom] final class MemoryLadder(
    mode: MemoryFailureMode,
    base: ExecutorSize,
    cpusPerTask: Int,
    largest: Long) {

  /** The configured size. */
  val first: Rung = Rung(1, cpusPerTask, base)

  /**
   * The rung after a failure on `rung`. `alone` is true if no other task ran on the executor: more
   * processors would not have given the task more memory.
   */
  def after(rung: Rung, dimension: MemoryDimension, alone: Boolean): LadderStep = {
    val wide = mode match {
      case MemoryFailureMode.Uber => base.cores
      case _ => math.min(2 * rung.cpus, base.cores)
    }
    if (rung.executor == base && !alone && rung.cpus == cpusPerTask && wide > rung.cpus) {
      LadderStep.Next(Rung(rung.number + 1, wide, base))
    } else {
      mode match {
        case MemoryFailureMode.Uber | MemoryFailureMode.Off =>
          LadderStep.Exhausted(s"it ran alone on an executor of ${rung.executor}; set a larger " +
            s"${settingOf(dimension)}")
        case MemoryFailureMode.Pinterest => larger(rung, allDimensions, dimension)
        case MemoryFailureMode.Headroom => larger(rung, Seq(dimension), dimension)
      }
    }
  }

  private def allDimensions: Seq[MemoryDimension] =
    Seq(MemoryDimension.Heap, MemoryDimension.OffHeap, MemoryDimension.Overhead)

  private def larger(
      rung: Rung,
      grown: Seq[MemoryDimension],
      failed: MemoryDimension): LadderStep = {
    val now = rung.executor.copy(cores = cpusPerTask)
    val size = grown.foldLeft(now) { (size, dimension) =>
      val unit = base.of(dimension)
      val times = if (unit == 0) 0 else math.min(MemoryLadder.MostTimes, now.of(dimension) / unit + 1)
      val room = largest - (size.memory - size.of(dimension))
      size.withMemory(dimension, math.max(now.of(dimension), math.min(times * unit, room)))
    }
    // A gain below a tenth is not worth an attempt.
    if (size.of(failed) * 10 >= now.of(failed) * 11) {
      LadderStep.Next(Rung(rung.number + 1, cpusPerTask, size))
    } else if (now.of(failed) >= MemoryLadder.MostTimes * base.of(failed)) {
      LadderStep.Exhausted(s"it had ${MemoryLadder.MostTimes} times the configured ${failed.name}, " +
        s"${now.of(failed)} MiB; set a larger ${settingOf(failed)}, or split the partition " +
        "(spark.sql.shuffle.partitions, spark.sql.adaptive.skewJoin.enabled)")
    } else {
      LadderStep.Exhausted(s"the largest container of the cluster, $largest MiB, is reached with " +
        s"${now.of(failed)} MiB of ${failed.name}; split the partition " +
        "(spark.sql.shuffle.partitions, spark.sql.adaptive.skewJoin.enabled), or add a larger node")
    }
  }

  private def settingOf(dimension: MemoryDimension): String = dimension match {
    case MemoryDimension.Heap => "spark.executor.memory"
    case MemoryDimension.OffHeap => "spark.memory.offHeap.size"
    case MemoryDimension.Overhead if base.python > 0 => "spark.executor.pyspark.memory"
    case MemoryDimension.Overhead => "spark.executor.memoryOverhead"
  }
}

private[headroom] object MemoryLadder {

  /** Largest multiple of the configured size in one dimension. */
  val MostTimes = 4L
}
