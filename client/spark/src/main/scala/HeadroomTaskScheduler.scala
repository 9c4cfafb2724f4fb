package org.apache.spark.scheduler.headroom

import java.nio.ByteBuffer

import scala.collection.mutable

import org.apache.spark.{SparkContext, TaskState}
import org.apache.spark.TaskFailedReason
import org.apache.spark.TaskState.TaskState
import org.apache.spark.scheduler.{ExecutorLossReason, LossReasonPending, ShuffleMapTask, TaskDescription, TaskSchedulerImpl, TaskSet, TaskSetManager, WorkerOffer}

/** One raised task that is offered to one executor. */
private[headroom] final class OfferedTask(
    val taskSet: HeadroomTaskSetManager,
    val index: Int,
    val cpus: Int) {

  private var taken = false

  def isTaken: Boolean = taken

  def take(): Unit = taken = true
}

/** Larger executors that waiting tasks need. */
private[headroom] final case class LargeDemand(sizes: Map[ExecutorSize, Int])

/** Observes rungs; called with the lock of the scheduler held, so it must not wait. */
private[headroom] trait RungListener {
  /** `attempt` (Spark's task id) ran out of memory; the next attempt of its task has `rung`. */
  def raised(
      task: StagePartition,
      attempt: Long,
      rung: Rung,
      dimension: MemoryDimension,
      sentence: String): Unit

  /** `attempt` (Spark's task id) ran out of memory, and its task has no larger size. */
  def exhausted(
      task: StagePartition,
      attempt: Long,
      dimension: MemoryDimension,
      sentence: String): Unit
  def recalled(task: StagePartition, rung: Rung): Unit

  /** A task succeeded above the first rung. `name` is its name in every run of the application. */
  def learned(name: String, rung: Rung): Unit
}

/**
 * Spark's task scheduler with rungs: raised tasks are placed first, each on an executor that fits
 * its rung; all other tasks follow on executors of the configured size, as Spark places them.
 */
private[headroom] class HeadroomTaskScheduler(sc: SparkContext, val settings: Settings)
    extends TaskSchedulerImpl(sc) {

  /** Bounded by the first sync with the resource manager. */
  @volatile private var largestMiB = Long.MaxValue

  private lazy val ladder =
    new MemoryLadder(settings.mode, settings.executor, settings.cpusPerTask, largestMiB)
  lazy val rungs = new TaskRungs(ladder)

  // All below is owned by the lock of the scheduler.
  private var offered: Option[OfferedTask] = None
  private val sizes = new java.util.concurrent.ConcurrentHashMap[String, ExecutorSize]()
  private val undecoded = mutable.HashMap.empty[String, mutable.HashSet[Long]]
  private val doomed = mutable.HashMap.empty[String, Long]
  private val culprits = mutable.HashMap.empty[String, Long]
  private val suspects =
    mutable.HashMap.empty[String, (Long, StagePartition, HeadroomTaskSetManager)]
  private val tasksAtLoss = mutable.HashMap.empty[String, Seq[Long]]
  private var reserved: Option[String] = None
  private var lastDemand = LargeDemand(Map.empty)

  @volatile private var demandListener: LargeDemand => Unit = (_: LargeDemand) => ()
  @volatile private var rungListener: Option[RungListener] = None

  def observe(demand: LargeDemand => Unit, listener: RungListener): Unit = {
    demandListener = demand
    rungListener = Some(listener)
  }

  /** Bounds the ladder; to be called before the first task. */
  def limitTo(mib: Long): Unit = largestMiB = mib

  /** Size of an executor, from its request to its end. */
  def executorSize(executor: String): ExecutorSize = sizes.getOrDefault(executor, settings.executor)

  /** Executors that get no new tasks, because their memory is needed for a larger one. */
  @volatile var draining: Set[String] = Set.empty

  def executorRequested(executor: String, size: ExecutorSize): Unit = sizes.put(executor, size)

  /** Forgets an executor after its tasks were judged, or one that never registered. */
  def executorGone(executor: String): Unit = {
    sizes.remove(executor)
    proven.remove(executor)
    synchronized {
      undecoded.remove(executor)
      doomed.remove(executor)
      culprits.remove(executor)
      suspects.remove(executor)
      tasksAtLoss.remove(executor)
      if (reserved.contains(executor)) reserved = None
    }
  }

  /** Executors on which a task succeeded. */
  private val proven = java.util.concurrent.ConcurrentHashMap.newKeySet[String]()

  def taskSucceededOn(executor: String): Unit = proven.add(executor)

  def isProven(executor: String): Boolean = proven.contains(executor)

  def retriesMemoryFailures: Boolean = settings.mode != MemoryFailureMode.Off

  def offHeapExecution: Boolean = settings.executor.offHeap > 0

  def offeredTask: Option[OfferedTask] = offered

  override private[scheduler] def createTaskSetManager(
      taskSet: TaskSet,
      maxTaskFailures: Int): TaskSetManager = {
    val manager = new HeadroomTaskSetManager(this, taskSet, maxTaskFailures)
    val known =
      if (manager.isBarrier) Nil
      else rungs.recall(
        taskSet.stageId, manager.stageKind, manager.tasks.map(_.partitionId).toSeq)
    if (known.nonEmpty) {
      known.foreach { case (task, rung) => rungListener.foreach(_.recalled(task, rung)) }
      logInfo(s"${known.size} tasks of stage ${taskSet.stageId} start on the size with which they " +
        "succeeded in an earlier run of the stage")
    }
    manager
  }

  /**
   * The name of a stage in every run. Called by the thread that submits stages, which owns the table
   * of stages.
   */
  private[headroom] def stageKind(taskSet: TaskSet): String = {
    val callSite = Option(taskSet.properties)
      .flatMap(properties => Option(properties.getProperty("callSite.short")))
      .getOrElse("")
    val stage = Option(dagScheduler).flatMap(_.stageIdToStage.get(taskSet.stageId))
    StageKind.of(
      callSite,
      isMap = taskSet.tasks.headOption.exists(_.isInstanceOf[ShuffleMapTask]),
      // A later attempt of a stage has only the missing tasks.
      parents = stage.map(_.parents.size).getOrElse(0),
      tasks = stage.map(_.numTasks).getOrElse(taskSet.tasks.length))
  }

  /** Adds the sizes of earlier runs of the application. */
  def restore(earlier: Seq[EnlargedTask]): Unit = synchronized {
    rungs.restore(earlier.flatMap { task =>
      LearnedSizes
        .rungOf(task, settings.executor, settings.cpusPerTask, settings.mode, largestMiB)
        .map(rung => task.name -> rung)
    })
  }

  def learned(name: String, rung: Rung): Unit = rungListener.foreach(_.learned(name, rung))

  // ---- offers

  override def resourceOffers(
      offers: IndexedSeq[WorkerOffer],
      isAllFreeResources: Boolean): Seq[Seq[TaskDescription]] = synchronized {
    val now = System.currentTimeMillis()
    doomed.filter { case (_, until) => until < now }.keys.toSeq.foreach(doomed.remove)
    val free = mutable.LinkedHashMap.empty[String, Int]
    offers.foreach { offer =>
      val usable = !doomed.contains(offer.executorId) &&
        !undecoded.contains(offer.executorId) && !draining.contains(offer.executorId)
      free(offer.executorId) = if (usable) Shim.wholeCpus(offer.cores) else 0
    }
    val launched = mutable.ArrayBuffer.empty[Seq[TaskDescription]]
    val waiting = if (rungs.hasSeparate) separateWaiting() else Nil
    var unplaced = Seq.empty[(HeadroomTaskSetManager, Int)]
    waiting.foreach { case (manager, index) =>
      placeSeparate(manager, index, offers, free) match {
        case Some(tasks) => launched ++= tasks
        case None => unplaced :+= ((manager, index))
      }
    }
    // An offer of one executor does not show that no other one fits.
    if (isAllFreeResources) {
      reserve(unplaced, offers, free)
      tellDemand(unplaced)
    }
    // Executors that take no further tasks are offered without processors, so that Spark knows them.
    val rest = offers.map { offer =>
      val small = executorSize(offer.executorId) == settings.executor
      val cores =
        if (small && !reserved.contains(offer.executorId)) free(offer.executorId) else 0
      offer.copy(cores = Shim.cpus(cores))
    }
    launched.toSeq ++ super.resourceOffers(rest, isAllFreeResources)
  }

  private def separateWaiting(): Seq[(HeadroomTaskSetManager, Int)] =
    rootPool.getSortedTaskSetQueue.toSeq.flatMap {
      case manager: HeadroomTaskSetManager => manager.waitingSeparate.map(index => (manager, index))
      case _ => Nil
    }

  /** Launches one task on an executor that fits its rung, if one is free. */
  private def placeSeparate(
      manager: HeadroomTaskSetManager,
      index: Int,
      offers: IndexedSeq[WorkerOffer],
      free: mutable.Map[String, Int]): Option[Seq[Seq[TaskDescription]]] = {
    val rung = manager.rungOf(index)
    val wide = rung.executor == settings.executor
    val fitting = offers.filter { offer =>
      val size = executorSize(offer.executorId)
      if (wide) size == settings.executor && free(offer.executorId) >= rung.cpus
      else size != settings.executor && size.covers(rung.executor) &&
        free(offer.executorId) >= size.cores
    }
    // The smallest executor that is large enough, and that Spark does not exclude for this stage.
    fitting.sortBy(offer => executorSize(offer.executorId).memory).iterator
      .map { offer =>
        val cpus = if (wide) rung.cpus else executorSize(offer.executorId).cores
        val launched = offerOne(new OfferedTask(manager, index, cpus), offer)
        if (launched.exists(_.nonEmpty)) {
          free(offer.executorId) -= cpus
          if (reserved.contains(offer.executorId)) reserved = None
        }
        launched
      }
      .find(_.exists(_.nonEmpty))
  }

  /** Offers exactly one slot of one executor, for one task. */
  private def offerOne(task: OfferedTask, offer: WorkerOffer): Seq[Seq[TaskDescription]] = {
    val profileId = task.taskSet.taskSet.resourceProfileId
    val profile = sc.resourceProfileManager.resourceProfileFromId(profileId)
    offered = Some(task)
    try {
      super.resourceOffers(
        IndexedSeq(offer.copy(cores = Shim.cpus(taskCpus(profile)), resourceProfileId = profileId)),
        false)
    } finally offered = None
  }

  private def taskCpus(profile: org.apache.spark.resource.ResourceProfile): Int =
    profile.taskResources.get("cpus").map(_.amount.ceil.toInt).getOrElse(settings.cpusPerTask)

  /**
   * Keeps one executor of the configured size free of new tasks while a task that needs more of its
   * processors waits: small tasks would take every processor as it becomes free.
   */
  private def reserve(
      unplaced: Seq[(HeadroomTaskSetManager, Int)],
      offers: IndexedSeq[WorkerOffer],
      free: mutable.Map[String, Int]): Unit = {
    val wide = unplaced.exists { case (manager, index) =>
      manager.rungOf(index).executor == settings.executor
    }
    if (!wide) reserved = None
    else if (!reserved.exists(sizes.containsKey)) {
      val candidates = offers.filter { offer =>
        executorSize(offer.executorId) == settings.executor && !doomed.contains(offer.executorId)
      }
      if (candidates.nonEmpty) {
        reserved = Some(candidates.maxBy(offer => free(offer.executorId)).executorId)
      }
    }
  }

  private def tellDemand(unplaced: Seq[(HeadroomTaskSetManager, Int)]): Unit = {
    val large = unplaced
      .map { case (manager, index) => manager.rungOf(index).executor }
      .filter(_ != settings.executor)
    val demand = LargeDemand(large.groupBy(identity).map { case (size, all) => size -> all.size })
    if (demand != lastDemand) {
      lastDemand = demand
      demandListener(demand)
    }
  }

  // ---- failures

  override def statusUpdate(tid: Long, state: TaskState, data: ByteBuffer): Unit = {
    // Until the reason of a failure is decoded, the executor may be about to exit: no offers.
    if (state == TaskState.FAILED) synchronized {
      if (taskIdToTaskSetManager.containsKey(tid)) {
        taskIdToExecutorId.get(tid).foreach { executor =>
          undecoded.getOrElseUpdate(executor, mutable.HashSet.empty) += tid
        }
      }
    }
    super.statusUpdate(tid, state, data)
  }

  override def handleFailedTask(
      manager: TaskSetManager,
      tid: Long,
      state: TaskState,
      reason: TaskFailedReason): Unit = synchronized {
    decoded(tid)
    super.handleFailedTask(manager, tid, state, reason)
  }

  private def decoded(tid: Long): Unit =
    undecoded.find { case (_, tids) => tids.contains(tid) }.foreach { case (executor, tids) =>
      tids -= tid
      if (tids.isEmpty) undecoded.remove(executor)
    }

  override def executorLost(executor: String, reason: ExecutorLossReason): Unit = {
    // Spark forgets the tasks of the executor in the call below, before task sets hear of the loss.
    synchronized(tasksAtLoss.getOrElseUpdate(executor, runningOn(executor)))
    reason match {
      case lost: ContainerLost if lost.memory.isDefined && retriesMemoryFailures =>
        synchronized {
          // A Python worker died before the report came: its task is the culprit.
          suspects.remove(executor).foreach { case (tid, task, manager) =>
            rungs.release(task)
            if (!culprits.contains(executor)) {
              culprits(executor) = tid
              manager.partitionToIndex.get(task.partition).foreach { index =>
                if (!manager.isZombie) {
                  manager.raise(
                    tid, index, lost.memory.get, tasksAtLoss(executor).isEmpty, lost.message)
                }
              }
            }
          }
        }
      case _ => ()
    }
    super.executorLost(executor, reason)
    if (reason != LossReasonPending) executorGone(executor)
  }

  private def runningOn(executor: String): Seq[Long] =
    taskIdToExecutorId.collect { case (tid, where) if where == executor => tid }.toSeq

  /** True if an executor runs other tasks than one whose failure is being handled. */
  def runsOthers(executor: String): Boolean =
    undecoded.contains(executor) || runningOn(executor).nonEmpty

  /** The number of tasks that an executor ran when it was lost. */
  def tasksWhenLost(executor: String): Int = tasksAtLoss.get(executor).map(_.size).getOrElse(0)

  /** No offers for an executor that is about to exit. */
  def expectLoss(executor: String): Unit =
    doomed(executor) = System.currentTimeMillis() + HeadroomTaskScheduler.LossExpectedMs

  def foundCulprit(executor: String, tid: Long): Unit = culprits(executor) = tid

  /** True if one task is known to have caused the failure, so that the others are collateral. */
  def hasCulprit(executor: String): Boolean =
    culprits.contains(executor) && settings.mode != MemoryFailureMode.Uber

  def suspect(
      executor: String,
      tid: Long,
      task: StagePartition,
      manager: HeadroomTaskSetManager): Unit = {
    suspects(executor) = (tid, task, manager)
    expectLossBriefly(executor)
  }

  private def expectLossBriefly(executor: String): Unit =
    doomed(executor) = System.currentTimeMillis() + HeadroomTaskScheduler.VerdictExpectedMs

  def raised(
      task: StagePartition,
      attempt: Long,
      rung: Rung,
      dimension: MemoryDimension,
      sentence: String): Unit = {
    if (rung.executor.memory > largestMiB) {
      logWarning(s"no container can have ${rung.executor}")
    }
    rungListener.foreach(_.raised(task, attempt, rung, dimension, sentence))
  }

  def exhausted(
      task: StagePartition,
      attempt: Long,
      dimension: MemoryDimension,
      sentence: String): Unit =
    rungListener.foreach(_.exhausted(task, attempt, dimension, sentence))

  /** Ends all tasks that wait for an executor of a size that no node has. */
  def infeasible(size: ExecutorSize, sentence: String): Unit = synchronized {
    rootPool.getSortedTaskSetQueue.foreach {
      case manager: HeadroomTaskSetManager
          if manager.waitingSeparate.exists(index => manager.rungOf(index).executor == size) =>
        manager.abort(s"a task needs an executor of $size: $sentence")
      case _ => ()
    }
  }

  /** Forgets the rungs of a stage that ended for good. */
  def stageEnded(stage: Int): Unit = synchronized(rungs.forget(stage))
}

private[headroom] object HeadroomTaskScheduler {

  /** An executor exits within this time after an OutOfMemoryError of a task. */
  val LossExpectedMs = 60000L

  /** The node reports an out-of-memory kill within this time after a Python worker died. */
  val VerdictExpectedMs = 3000L
}
