package org.apache.spark.scheduler.headroom

import org.apache.spark.{ExceptionFailure, TaskFailedReason}
import org.apache.spark.TaskState.TaskState
import org.apache.spark.scheduler.{DirectTaskResult, ExecutorLossReason, TaskDescription, TaskLocality, TaskSet, TaskSetManager}
import org.apache.spark.scheduler.TaskLocality.TaskLocality

/**
 * A task set whose tasks have rungs: a task above the first rung is not offered with the others,
 * but by [[HeadroomTaskScheduler]] on an executor that fits its rung.
 *
 * The constructor of the base class calls methods of this class before its fields exist; only
 * constructor parameters are used there.
 */
private[headroom] class HeadroomTaskSetManager(
    scheduler: HeadroomTaskScheduler,
    taskSet: TaskSet,
    maxTaskFailures: Int)
    extends TaskSetManager(scheduler, taskSet, maxTaskFailures, scheduler.healthTrackerOpt) {

  private val rungs = scheduler.rungs

  /** The name of the stage in every run of the application. */
  lazy val stageKind: String = scheduler.stageKind(taskSet)

  /** The rung of the task at `index`. */
  def rungOf(index: Int): Rung = rungs.of(taskAt(index))

  /** Tasks that are placed apart and wait for an executor, the lowest index first. */
  def waitingSeparate: Seq[Int] =
    if (isZombie || isBarrier) Nil
    else {
      rungs.separatePartitions(stageId, System.currentTimeMillis()).toSeq.distinct
        .flatMap(partitionToIndex.get)
        .filter(index => !successful(index) && copiesRunning(index) == 0)
        .sorted
    }

  private def taskAt(index: Int): StagePartition =
    StagePartition(stageId, tasks(index).partitionId)

  private def isSeparate(index: Int): Boolean = !isBarrier && rungs.isSeparate(taskAt(index))

  override def isSchedulable: Boolean = super.isSchedulable || waitingSeparate.nonEmpty

  override def resourceOffer(
      executor: String,
      host: String,
      maxLocality: TaskLocality,
      taskCpus: Shim.Cpus,
      resources: Shim.TaskResources): (Option[TaskDescription], Boolean, Int) =
    scheduler.offeredTask match {
      case None => super.resourceOffer(executor, host, maxLocality, taskCpus, resources)
      case Some(offered) if (offered.taskSet eq this) && !offered.isTaken =>
        offered.take()
        rungs.release(taskAt(offered.index))
        val task = prepareLaunchingTask(
          executor,
          host,
          offered.index,
          TaskLocality.ANY,
          false,
          Shim.cpus(offered.cpus),
          resources,
          System.currentTimeMillis())
        rungs.started(task.taskId, taskAt(offered.index))
        (Some(task), false, offered.index)
      // An offer for one raised task must not touch the timers of delay scheduling of the others.
      case Some(_) => (None, false, -1)
    }

  override protected def dequeueTaskHelper(
      executor: String,
      host: String,
      maxLocality: TaskLocality.Value,
      speculative: Boolean): Option[(Int, TaskLocality.Value, Boolean)] = {
    // A task that is taken from a pending list and not started is found by `waitingSeparate`.
    var next = super.dequeueTaskHelper(executor, host, maxLocality, speculative)
    while (next.exists { case (index, _, _) => isSeparate(index) }) {
      next = super.dequeueTaskHelper(executor, host, maxLocality, speculative)
    }
    next
  }

  override def handleFailedTask(tid: Long, state: TaskState, reason: TaskFailedReason): Unit =
    reason match {
      case failure: ExceptionFailure if taskInfos.contains(tid) && !taskInfos(tid).finished =>
        super.handleFailedTask(tid, state, judge(tid, failure))
      case other => super.handleFailedTask(tid, state, other)
    }

  /** Raises the task after a memory failure, and decides whether the failure counts. */
  private def judge(tid: Long, failure: ExceptionFailure): ExceptionFailure = {
    val info = taskInfos(tid)
    val executor = info.executorId
    MemoryFailure.dimensionOf(failure, scheduler.offHeapExecution) match {
      case Some(dimension) if scheduler.retriesMemoryFailures =>
        // An executor that lives on may be lost later for another task.
        if (MemoryFailure.isFatal(failure)) {
          scheduler.expectLoss(executor)
          scheduler.foundCulprit(executor, tid)
        }
        // The tasks of a barrier stage start together and keep their size: Spark limits their attempts.
        if (isBarrier) failure
        else {
          val alone = !scheduler.runsOthers(executor)
          new UncountedFailure(
            failure, raise(tid, info.index, dimension, alone, failure.description))
        }
      case Some(_) => failure
      case None if MemoryFailure.isRejected(failure) =>
        scheduler.expectLoss(executor)
        new UncountedFailure(failure, "the executor exits and did not start the task")
      case None
          if MemoryFailure.isPythonCrash(failure) && scheduler.retriesMemoryFailures && !isBarrier =>
        // The kernel may have killed the worker for the limit of the container. The report of the
        // node follows; it raises this task. Until then the task must not fail elsewhere again.
        scheduler.suspect(executor, tid, taskAt(info.index), this)
        rungs.hold(
          taskAt(info.index),
          System.currentTimeMillis() + HeadroomTaskScheduler.VerdictExpectedMs)
        if (rungs.pythonCrash(taskAt(info.index)) < maxTaskFailures) {
          new UncountedFailure(failure, failure.description)
        } else failure
      case None => failure
    }
  }

  override def executorLost(executor: String, host: String, reason: ExecutorLossReason): Unit = {
    reason match {
      case lost: ContainerLost
          if lost.memory.isDefined && scheduler.retriesMemoryFailures && !isBarrier =>
        // Also a task whose failure is reported and not decoded yet.
        val mine = taskInfos.values
          .filter(info => info.running && info.executorId == executor).toSeq
        val alone = scheduler.tasksWhenLost(executor) <= 1
        // With a known culprit the others are collateral: same size, not charged.
        if (!scheduler.hasCulprit(executor)) {
          mine.foreach(info =>
            raise(info.taskId, info.index, lost.memory.get, alone, lost.message))
        }
      case _ => ()
    }
    super.executorLost(executor, host, reason)
  }

  override def handleSuccessfulTask(tid: Long, result: DirectTaskResult[_]): Unit = {
    taskInfos.get(tid).foreach { info =>
      scheduler.taskSucceededOn(info.executorId)
      rungs.learn(tid, taskAt(info.index), stageKind).foreach { case (name, rung) =>
        scheduler.learned(name, rung)
      }
    }
    super.handleSuccessfulTask(tid, result)
  }

  /**
   * Raises the task of an attempt, unless another copy of it succeeded, or ran out of memory on the
   * same rung before. Ends the stage if no larger size exists. Returns the sentence for users.
   */
  def raise(
      tid: Long,
      index: Int,
      dimension: MemoryDimension,
      alone: Boolean,
      cause: String): String = {
    val task = taskAt(index)
    val before = rungs.of(task)
    if (successful(index)) s"another copy of the task succeeded [$cause]"
    else if (rungs.isBehind(tid, task)) s"the task has rung ${before.number} by now [$cause]"
    else raise(tid, index, before, dimension, alone, cause)
  }

  private def raise(
      tid: Long,
      index: Int,
      before: Rung,
      dimension: MemoryDimension,
      alone: Boolean,
      cause: String): String = {
    val task = taskAt(index)
    rungs.raise(task, dimension, alone) match {
      case LadderStep.Next(rung) =>
        val sentence =
          if (rung.executor == before.executor) {
            s"out of ${dimension.name} memory; the next attempt takes ${rung.cpus} of " +
              s"${rung.executor.cores} processors of an executor of ${rung.executor}"
          } else {
            s"out of ${dimension.name} memory; the next attempt runs alone on an executor of " +
              s"${rung.executor}"
          }
        logInfo(s"task ${task.partition} of stage ${task.stage}, rung ${rung.number}: $sentence")
        scheduler.raised(task, tid, rung, dimension, sentence)
        s"$sentence [$cause]"
      case LadderStep.Exhausted(limit) =>
        val sentence = s"task ${task.partition} of stage ${task.stage} ran out of " +
          s"${dimension.name} memory, and no larger size is left: $limit"
        scheduler.exhausted(task, tid, dimension, sentence)
        abort(s"$sentence. Last failure: $cause")
        sentence
    }
  }
}
