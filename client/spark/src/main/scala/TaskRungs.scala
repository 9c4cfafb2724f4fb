package org.apache.spark.scheduler.headroom

import scala.collection.mutable

/** A task of a stage. Partitions keep their number in later attempts of the stage. */
private[headroom] final case class StagePartition(stage: Int, partition: Int)

/**
 * The rung of every task that is not on the first one.
 *
 * Keyed by stage and partition, not by task set: after a lost map output Spark runs the stage in a
 * new task set, and a rung that was lost with the old one would begin at the first rung again.
 * Owned by the lock of the task scheduler.
 */
private[headroom] final class TaskRungs(ladder: MemoryLadder) {

  private val rungs = mutable.HashMap.empty[StagePartition, Rung]
  private val byStage = mutable.HashMap.empty[Int, mutable.HashSet[Int]]

  // Sizes with which tasks succeeded, by the name of the task in every run; oldest first.
  private val learned = mutable.LinkedHashMap.empty[String, Rung]

  /** Tasks that wait for the verdict on an executor, and the end of the wait (ms since 1970). */
  private val held = mutable.HashMap.empty[StagePartition, Long]

  /** Failures of Python workers without a memory verdict. */
  private val pythonCrashes = mutable.HashMap.empty[StagePartition, Int]

  // Rungs on which attempts above the first one were started, by Spark's task id. A speculative copy
  // may run on a lower rung than its task has by now.
  private val startedOn = mutable.HashMap.empty[Long, (StagePartition, Rung)]

  def of(task: StagePartition): Rung = rungs.getOrElse(task, ladder.first)

  def isRaised(task: StagePartition): Boolean = rungs.contains(task)

  /** Partitions of a stage above the first rung, and those that were held, at `now`. */
  def separatePartitions(stage: Int, now: Long): Iterable[Int] =
    byStage.getOrElse(stage, Nil).filter(partition => !isHeld(StagePartition(stage, partition), now)) ++
      held.collect { case (task, until) if task.stage == stage && until <= now && !isRaised(task) =>
        task.partition
      }

  /** True if any task is placed apart from the others. */
  def hasSeparate: Boolean = rungs.nonEmpty || held.nonEmpty

  /** True if the task is not offered with the others of its stage. */
  def isSeparate(task: StagePartition): Boolean = rungs.contains(task) || held.contains(task)

  /** Keeps a task back until the verdict on its executor is there, or until `until`. */
  def hold(task: StagePartition, until: Long): Unit = held(task) = until

  def release(task: StagePartition): Unit = held.remove(task)

  private def isHeld(task: StagePartition, now: Long): Boolean = held.get(task).exists(_ > now)

  /** Moves a task to the next rung, unless none is left. Its crashes have a cause then. */
  def raise(task: StagePartition, dimension: MemoryDimension, alone: Boolean): LadderStep = {
    pythonCrashes.remove(task)
    val step = ladder.after(of(task), dimension, alone)
    step match {
      case LadderStep.Next(rung) => put(task, rung)
      case LadderStep.Exhausted(_) => ()
    }
    step
  }

  /** Counts a crash of a Python worker without a known cause. */
  def pythonCrash(task: StagePartition): Int = {
    val count = pythonCrashes.getOrElse(task, 0) + 1
    pythonCrashes(task) = count
    count
  }

  /** Adds the rungs of tasks of an earlier run of the application, by the name of the task. */
  def restore(earlier: Seq[(String, Rung)]): Unit = earlier.foreach { case (name, rung) =>
    learned(name) = rung
  }

  /**
   * Starts the tasks of a stage on the rungs on which they succeeded in an earlier run of the stage.
   * Returns the tasks with their rungs.
   */
  def recall(
      stage: Int,
      kind: String,
      partitions: Seq[Int]): Seq[(StagePartition, Rung)] =
    if (learned.isEmpty) Nil
    else {
      val known = for {
        partition <- partitions
        rung <- learned.get(StageKind.taskName(kind, partition))
        task = StagePartition(stage, partition)
        if !isRaised(task)
      } yield (task, rung)
      known.foreach { case (task, rung) => put(task, rung) }
      known
    }

  /** An attempt is started on the present rung of its task. */
  def started(attempt: Long, task: StagePartition): Unit =
    rungs.get(task).foreach(rung => startedOn(attempt) = (task, rung))

  /** True if an attempt was started on a lower rung than its task has by now. */
  def isBehind(attempt: Long, task: StagePartition): Boolean =
    startedOn.get(attempt).map(_._2.number).getOrElse(ladder.first.number) < of(task).number

  /**
   * Keeps the rung of a task whose attempt succeeded on it. Returns its name and rung. An attempt
   * that was started on a lower rung shows that the task needs no more memory.
   */
  def learn(attempt: Long, task: StagePartition, kind: String): Option[(String, Rung)] =
    rungs.get(task).filterNot(_ => isBehind(attempt, task)).map { rung =>
      startedOn.remove(attempt)
      val name = StageKind.taskName(kind, task.partition)
      learned.remove(name)
      learned(name) = rung
      if (learned.size > TaskRungs.MostLearned) learned.remove(learned.head._1)
      (name, rung)
    }

  /** Forgets a stage that ended for good. */
  def forget(stage: Int): Unit = {
    byStage.remove(stage).foreach(_.foreach(partition => rungs.remove(StagePartition(stage, partition))))
    startedOn.collect { case (attempt, (task, _)) if task.stage == stage => attempt }.toSeq
      .foreach(startedOn.remove)
    held.keys.filter(_.stage == stage).toSeq.foreach(held.remove)
    pythonCrashes.keys.filter(_.stage == stage).toSeq.foreach(pythonCrashes.remove)
  }

  private def put(task: StagePartition, rung: Rung): Unit = {
    rungs(task) = rung
    byStage.getOrElseUpdate(task.stage, mutable.HashSet.empty) += task.partition
  }
}

private[headroom] object TaskRungs {

  /** Most tasks whose size is kept for later runs of their stage. */
  val MostLearned = 100000
}
