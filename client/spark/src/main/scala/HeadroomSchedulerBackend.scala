package org.apache.spark.scheduler.headroom

import java.util.concurrent.{Executors, ScheduledExecutorService, TimeUnit}

import scala.collection.mutable
import scala.concurrent.Future

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.{SparkContext, SparkException}
import org.apache.spark.resource.{ExecutorResourceRequests, ResourceProfile, ResourceProfileBuilder}
import org.apache.spark.rpc.{RpcAddress, RpcCallContext, RpcEndpointAddress}
import org.apache.spark.scheduler.{ExecutorDecommissionInfo, ExecutorLossReason, ExecutorProcessLost, SparkListener, SparkListenerJobEnd, SparkListenerJobStart}
import org.apache.spark.scheduler.cluster.{CoarseGrainedSchedulerBackend, SchedulerBackendUtils}
import org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages.{RegisterExecutor, RetrieveSparkAppConfig, SparkAppConfig}
import org.apache.spark.util.ThreadUtils

/**
 * Executors as containers of Headroom.
 *
 * A task that needs more memory gets an executor with a larger size; towards Spark it has the
 * default resource profile, so that Spark's allocation counts it like any other. Towards the
 * executor the driver answers with the profile of the larger size (see [[LargeProfiles]]).
 *
 * Locks: calls of Spark may hold the lock of the scheduler or of this object. State of this class
 * is guarded by `executors`, a lock inside both; no method of Spark is called while it is held.
 */
private[headroom] class HeadroomSchedulerBackend(
    scheduler: HeadroomTaskScheduler,
    sc: SparkContext,
    client: ResourceManagerClient)
    extends CoarseGrainedSchedulerBackend(scheduler, sc.env.rpcEnv) {

  private val settings = scheduler.settings
  private val view = new JobView(settings, client.json)
  private val user = org.apache.spark.util.Utils.getCurrentUserName()
  private val session = new ApplicationSession(
    client, settings, ApplicationSession.applicationName(sc.appName), user, ContainerEvents)
  private val profiles = new LargeProfiles(settings)
  private val timer: ScheduledExecutorService =
    ThreadUtils.newDaemonSingleThreadScheduledExecutor("headroom-executors")

  private val executors = new ExecutorTable(settings)
  private val nodes = new NodeNames(client)

  private def table[T](use: ExecutorTable => T): T = executors.synchronized(use(executors))

  @volatile private var stopping = false
  @volatile private var excluded = Set.empty[String]

  override def start(): Unit = {
    try session.open()
    catch {
      case error: java.io.IOException =>
        throw new SparkException(
          s"the application could not be registered at ${client.address}: ${cause(error)}", error)
    }
    if (settings.executor.memory > session.largest) {
      session.finish(succeeded = false, "the executor is larger than any container")
      throw new SparkException(
        s"an executor of ${settings.executor} can never be granted: the largest container of the " +
          s"cluster is ${session.largest} MiB; lower spark.executor.memory or " +
          "spark.executor.memoryOverhead")
    }
    scheduler.limitTo(session.largest)
    if (settings.learnAcrossRuns) scheduler.restore(session.earlierTasks)
    scheduler.observe(demand => later(wantLarge(demand)), view)
    super.start()
    sc.listenerBus.addToManagementQueue(view)
    sc.listenerBus.addToManagementQueue(new JobEnds(scheduler.stageEnded))
    view.start(session.applicationId, () => session.touch())
    timer.scheduleWithFixedDelay(() => tick(), 1, 1, TimeUnit.SECONDS)
    if (settings.growInPlace) {
      growthTimer.scheduleWithFixedDelay(() => guarded(growth.check()), 1, 1, TimeUnit.SECONDS)
    }
    if (!org.apache.spark.util.Utils.isDynamicAllocationEnabled(conf)) {
      want(SchedulerBackendUtils.getInitialTargetExecutorNumber(conf))
    }
  }

  private def cause(error: Throwable): String = error match {
    case refused: ManagerRefusal => refused.getMessage
    case _: java.net.ConnectException | _: java.net.http.HttpTimeoutException =>
      "nothing answers there; check the address in --master and that the resource manager runs"
    case _: java.nio.channels.UnresolvedAddressException => "the name of the host cannot be resolved"
    case other => other.toString
  }

  override def applicationId(): String = session.applicationId

  override def applicationAttemptId(): Option[String] = Some(session.applicationAttempt.toString)

  override def stop(exitCode: Int): Unit = end(exitCode)

  override def stop(): Unit = end(0)

  private def end(exitCode: Int): Unit = {
    if (!stopping) {
      stopping = true
      Seq(timer, growthTimer).foreach(_.shutdownNow())
      try super.stop()
      finally session.finish(exitCode == 0, view.summary)
    }
  }

  // ---- number of executors

  override protected def doRequestTotalExecutors(
      totals: Map[ResourceProfile, Int]): Future[Boolean] = {
    val total = totals.collect {
      case (profile, count) if profile.id == ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID => count
    }.sum
    excluded = scheduler.excludedNodes()
    later(want(total))
    Future.successful(true)
  }

  override protected def doKillExecutors(ids: Seq[String]): Future[Boolean] = {
    ids.foreach { id =>
      table(_.releasing(id))
      session.release(id)
    }
    Future.successful(true)
  }

  override def sufficientResourcesRegistered(): Boolean =
    totalRegisteredExecutors.get() >= table(_.target) * minRegisteredRatio

  override val minRegisteredRatio: Double =
    conf.getDouble("spark.scheduler.minRegisteredResourcesRatio", 0.8)

  /** Runs `step` on the thread of this backend: callers may hold locks of Spark. */
  private def later(step: => Unit): Unit =
    try timer.execute(() => guarded(step))
    catch { case _: java.util.concurrent.RejectedExecutionException => () }

  private def guarded(step: => Unit): Unit =
    try step
    catch { case error: Exception => logError("a step of the Headroom backend failed", error) }

  private def want(total: Int): Unit = {
    val (asks, releases) = table(_.setTarget(total))
    asks.foreach(ask(_, settings.executor))
    releases.foreach { id =>
      session.release(id)
      table(_.gone(id))
      scheduler.executorGone(id)
    }
  }

  private def wantLarge(demand: LargeDemand): Unit = {
    val asks = table(_.setDemand(demand))
    asks.foreach { case (id, size) => ask(id, size) }
  }

  private def ask(id: String, size: ExecutorSize): Unit = {
    scheduler.executorRequested(id, size)
    val localTasks = rpHostToLocalTaskCount.getOrElse(
      ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID, Map.empty[String, Int])
    val preferred = localTasks.toSeq.sortBy(-_._2).flatMap { case (host, _) => nodes.at(host) }
    val profile =
      if (size == settings.executor) ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID
      else profiles.idOf(size)
    val launch = ExecutorLaunch.launch(
      client.json, conf, settings, id, size, profile, session.applicationId, driverUrl,
      client.currentAddress, sc.executorEnvs.toMap, user)
    session.request(ExecutorRequest(
      id, size, if (size == settings.executor) 0 else 1, preferred.distinct.take(20),
      excluded.toSeq.flatMap(nodes.at), settings.nodeLabels, launch))
  }

  private def driverUrl: String =
    RpcEndpointAddress(
      conf.get("spark.driver.host"),
      conf.get("spark.driver.port").toInt,
      CoarseGrainedSchedulerBackend.ENDPOINT_NAME).toString

  private def tick(): Unit = guarded {
    val now = System.currentTimeMillis()
    // Idle executors above the configured size.
    val large = table(_.registeredLarge)
    val busy = large.filter(scheduler.isExecutorBusy)
    table(_.idleLarge(busy, now)).foreach { id =>
      logInfo(s"executor $id is larger than configured and idle: it is released")
      table(_.releasing(id))
      session.release(id)
    }
    // Larger executors that wait for memory or processors which this application holds.
    val idle = table(_.configured).filterNot(scheduler.isExecutorBusy).toSet
    val room = table(_.makeRoom(idle, now))
    scheduler.draining = room.drain
    room.release.foreach { id =>
      logInfo(s"executor $id makes room for a larger executor")
      table(_.releasing(id))
      session.release(id)
    }
    // Executors without a report of their node.
    table(_.overdue(now)).foreach { id =>
      finishLoss(
        id,
        ExecutorProcessLost(
          s"executor $id disconnected, and its node sent no report within " +
            s"${settings.lossReportMs / 1000} s (spark.headroom.lossReportTimeout)",
          // A node that reports nothing is lost, or unreachable: no task is charged.
          causedByApp = false))
    }
  }

  // Calls of the resource manager: a slow one must not delay the reports of lost executors.
  private val growthTimer: ScheduledExecutorService =
    ThreadUtils.newDaemonSingleThreadScheduledExecutor("headroom-growth")
  private val growth = new GrowthInPlace(
    client, () => session.applicationId, () => table(_.containers))

  private def finishLoss(id: String, reason: ExecutorLossReason): Unit = {
    val registered = table(_.isRegistered(id))
    table(_.gone(id))
    if (registered) removeExecutor(id, reason) else scheduler.executorGone(id)
    want(table(_.target))
  }

  // ---- reports of the resource manager, on the thread of the session

  private object ContainerEvents extends SessionListener {

    override def granted(executor: String, container: String, node: String): Unit = {
      table(_.granted(executor, container, node))
      nodes.learn(node)
      view.granted(executor, container, node)
    }

    override def exited(executor: String, end: ContainerEnd): Unit = later {
      val (size, released) = table(known => (known.sizeOf(executor), known.isReleased(executor)))
      val loss = MemoryFailure.lossOf(executor, size, end, scheduler.retriesMemoryFailures)
      view.lost(executor, end, loss)
      if (released && loss.memory.isEmpty) logInfo(s"executor $executor ended, as requested")
      else logWarning(loss.message)
      val blamed = loss.exitCausedByApp || end.reason == "launch_failed"
      if (scheduler.isProven(executor)) table(_.startSucceeded())
      else if (blamed && !released && loss.memory.isEmpty) startFailed(loss)
      val host = table(_.hostOnlyOf(executor))
      finishLoss(executor, loss)
      // The shuffle files of the node are lost as well, even with a shuffle service.
      if (end.reason == "node_lost") host.foreach(nodeLost(end.node, _))
    }

    override def infeasible(executor: String, sentence: String): Unit = later {
      val size = table(_.sizeOf(executor))
      table(_.gone(executor))
      scheduler.executorGone(executor)
      if (size == settings.executor) fail(s"an executor can never be granted: $sentence")
      else scheduler.infeasible(size, sentence)
    }

    override def preemptSoon(executor: String, why: String): Unit =
      later(decommission(executor, s"preemption is announced: $why"))

    override def nodeDraining(node: String): Unit =
      later(table(_.on(node)).foreach(decommission(_, s"node $node is being drained")))

    override def over(sentence: String): Unit = later(fail(sentence))

    override def jobPatch(full: Boolean): Option[JsonNode] = view.patch(full)
  }

  /** Spark forgets all map outputs on the host and runs their tasks again, before a fetch fails. */
  private def nodeLost(node: String, host: String): Unit = {
    logWarning(s"node $node is lost: map outputs on host $host are computed again")
    removeWorker(node, host, s"node $node is lost")
  }

  private def decommission(executor: String, why: String): Unit =
    if (conf.getBoolean("spark.decommission.enabled", defaultValue = false)) {
      logInfo(s"executor $executor is decommissioned: $why")
      decommissionExecutor(
        executor, ExecutorDecommissionInfo(why), adjustTargetNumExecutors = false)
    } else {
      logWarning(s"executor $executor will be lost: $why; spark.decommission.enabled=true would move " +
        "its blocks first")
    }

  /** An executor that ends before any task succeeds on it will do so again: give up after a few. */
  private def startFailed(loss: ContainerLost): Unit = {
    val failures = table(_.startFailed())
    if (failures >= settings.mostFailedStarts) {
      fail(s"$failures executors in a row ended before a task succeeded on them " +
        s"(spark.headroom.maxFailedStarts); the last one: ${loss.message}")
    }
  }

  private def fail(sentence: String): Unit =
    if (!stopping) {
      logError(sentence)
      view.failed(sentence)
      try scheduler.error(sentence)
      catch { case _: SparkException => () }
      sc.stopInNewThread()
    }

  // ---- the endpoint of the driver

  override def createDriverEndpoint(): DriverEndpoint = new HeadroomDriverEndpoint

  private class HeadroomDriverEndpoint extends DriverEndpoint {

    /** The node reports the reason: until then the executor gets no tasks, and no task has failed. */
    override def onDisconnected(address: RpcAddress): Unit =
      addressToExecutorId.get(address).foreach { id =>
        if (disableExecutor(id)) {
          table(_.disconnected(id, System.currentTimeMillis()))
        }
      }

    override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] =
      translated(context).orElse(super.receiveAndReply(context))

    private def translated(context: RpcCallContext): PartialFunction[Any, Unit] = {
      case RetrieveSparkAppConfig(id) if profiles.contains(id) =>
        super.receiveAndReply(new RpcCallContext {
          override def reply(response: Any): Unit = response match {
            case config: SparkAppConfig =>
              context.reply(config.copy(resourceProfile = profiles.profileOf(id)))
            case other => context.reply(other)
          }
          override def sendFailure(error: Throwable): Unit = context.sendFailure(error)
          override def senderAddress: RpcAddress = context.senderAddress
        })(RetrieveSparkAppConfig(ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID))
      case register: RegisterExecutor =>
        val id = register.executorId
        if (table(_.registered(id, register.hostname))) {
          nodes.learnHost(register.hostname, table(_.nodeOf(id)))
          // The executor has the profile of its size; Spark counts it as one of the default profile.
          super.receiveAndReply(context)(
            register.copy(resourceProfileId = ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID))
        } else {
          context.sendFailure(new IllegalStateException(s"executor $id was not requested, or ended"))
        }
    }
  }
}

/** Reports the stages of jobs that ended: no later attempt of these stages follows. */
private[headroom] final class JobEnds(stageEnded: Int => Unit) extends SparkListener {

  private val stagesOf = mutable.HashMap.empty[Int, Seq[Int]]

  override def onJobStart(event: SparkListenerJobStart): Unit =
    stagesOf(event.jobId) = event.stageIds

  override def onJobEnd(event: SparkListenerJobEnd): Unit =
    stagesOf.remove(event.jobId).toSeq.flatten.foreach { stage =>
      // Another job may use the stage as well.
      if (!stagesOf.values.exists(_.contains(stage))) stageEnded(stage)
    }
}

/**
 * Resource profiles of executors above the configured size. Their numbers begin above those that
 * Spark gives to profiles of users.
 */
private[headroom] final class LargeProfiles(settings: Settings) {

  private val bySize = mutable.HashMap.empty[ExecutorSize, Int]
  private val byId = mutable.HashMap.empty[Int, ResourceProfile]

  def idOf(size: ExecutorSize): Int = synchronized {
    bySize.getOrElseUpdate(
      size, {
        val id = LargeProfiles.FirstId + bySize.size
        byId(id) = profile(size)
        id
      })
  }

  def contains(id: Int): Boolean = synchronized(byId.contains(id))

  def profileOf(id: Int): ResourceProfile = synchronized(byId(id))

  private def profile(size: ExecutorSize): ResourceProfile = {
    val executor = new ExecutorResourceRequests()
      .cores(size.cores)
      .memory(s"${size.heap}m")
      .memoryOverhead(s"${size.overhead}m")
    if (size.offHeap > 0) executor.offHeapMemory(s"${size.offHeap}m")
    if (size.python > 0) executor.pysparkMemory(s"${size.python}m")
    new ResourceProfileBuilder().require(executor).build()
  }
}

private[headroom] object LargeProfiles {
  val FirstId = 1000000
}
