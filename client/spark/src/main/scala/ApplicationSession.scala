package org.apache.spark.scheduler.headroom

import java.io.IOException
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.mutable

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.headroom.ResourceManagerClient.{field, objectOf}

/** One executor as a container request. */
private[headroom] final case class ExecutorRequest(
    executor: String,
    size: ExecutorSize,
    priority: Int,
    preferredNodes: Seq[String],
    avoidedNodes: Seq[String],
    nodeLabels: Seq[String],
    launch: JsonNode)

/** The end of a container, from the report of its node. */
private[headroom] final case class ContainerEnd(
    container: String,
    node: String,
    /** Closed reason of Headroom: `heap_oom`, `overhead_oom`, `preempted`, … */
    reason: String,
    /** Exit code of a program that exited by itself. */
    exitCode: Option[Int],
    signal: Option[Int],
    /** Limit and largest use, bytes. */
    limit: Option[Long],
    peak: Option[Long],
    heapBudget: Option[Long],
    heapUsed: Option[Long],
    /** Cause and fix, as the node diagnosed them. */
    cause: Option[String],
    fix: Option[String],
    logTail: String,
    startedMs: Option[Long],
    endedMs: Long,
    report: JsonNode)

/** Receives what the resource manager reports. Called by threads of the session, in order. */
private[headroom] trait SessionListener {
  def granted(executor: String, container: String, node: String): Unit
  def exited(executor: String, end: ContainerEnd): Unit
  def infeasible(executor: String, sentence: String): Unit
  def preemptSoon(executor: String, why: String): Unit
  def nodeDraining(node: String): Unit

  /** The application cannot go on: it was killed, or the resource manager is lost. */
  def over(sentence: String): Unit

  /** Changed rows of the job view, for the next sync; `None` without changes. */
  def jobPatch(full: Boolean): Option[JsonNode]
}

/**
 * The application towards the resource manager: registered master, desired requests, and the
 * stream of updates. One thread owns the state; it repeats what was not confirmed, so that a
 * restart of the resource manager loses nothing.
 */
private[headroom] final class ApplicationSession(
    client: ResourceManagerClient,
    settings: Settings,
    name: String,
    user: String,
    listener: SessionListener)
    extends Logging {

  import ApplicationSession._

  // Callers may hold locks of Spark, so `put` must not wait: requests are as many as executors, one
  // `Touch` waits at a time, and the reader of updates stops at `MostQueued`.
  private val inbox = new LinkedBlockingQueue[SessionCommand]()
  private val touched = new AtomicBoolean()

  // State of the thread of the session.
  private val requests = mutable.LinkedHashMap.empty[String, RequestState]
  private val unsent = mutable.LinkedHashSet.empty[String]
  private val drops = mutable.LinkedHashSet.empty[String]
  private val releases = mutable.LinkedHashSet.empty[String]
  private var acknowledged = 0L
  @volatile private var received = 0L
  private var viewIsFull = false
  private var earlier = Seq.empty[EnlargedTask]

  @volatile private var epoch = 0L
  @volatile private var ended = false
  @volatile private var largestMiB = Long.MaxValue
  @volatile private var stream: LineStream = _
  private var app: String = _
  private var attempt: String = _
  private var attemptNumber = 1

  private val worker = new Thread(() => run(), "headroom-session")
  private val reader = new Thread(() => readUpdates(), "headroom-updates")

  def applicationId: String = app

  def applicationAttempt: Int = attemptNumber

  /** Tasks that needed more memory in earlier runs, from the first registration. */
  def earlierTasks: Seq[EnlargedTask] = earlier

  /** The largest container that the cluster and the queue could grant, MiB. */
  def largest: Long = largestMiB

  /**
   * Submits the application, or takes over the one that started this driver as its master, and
   * registers. Fails with the sentence of the resource manager.
   */
  def open(): Unit = {
    sys.env.get("HEADROOM_APP").filter(_ => sys.env.contains("HEADROOM_SPARK_DRIVER")) match {
      case Some(managed) =>
        app = managed
        attemptNumber = field(client.get(s"/v1/apps/$managed"), "attempt").map(_.asInt).getOrElse(1)
        attempt = s"$managed@$attemptNumber"
      case None =>
        val submitted = client.post(
          "/v1/apps",
          objectOf(
            client.json,
            "name" -> name,
            // A token names its user; another one would need the right of an operator.
            "user" -> (if (client.hasToken) None else Some(user)),
            "queue" -> settings.queue,
            "idempotency_key" -> java.util.UUID.randomUUID().toString,
            "master" -> Map("kind" -> "unmanaged")))
        app = submitted.get("app").asText
        attempt = submitted.get("attempt").asText
    }
    earlier = LearnedSizes.fromReply(register())
    Seq(worker, reader).foreach { thread =>
      thread.setDaemon(true)
      thread.start()
    }
  }

  /** Asks for one executor. */
  def request(executor: ExecutorRequest): Unit = inbox.put(Ask(executor))

  /** Gives an executor back, granted or not. */
  def release(executor: String): Unit = inbox.put(Release(executor))

  /** Sends changes of the job view soon. */
  def touch(): Unit = if (!touched.getAndSet(true)) inbox.put(Touch)

  /**
   * Reports the end of the application, and waits for the answer. All containers end. Without an
   * application there is nothing to report.
   */
  def finish(succeeded: Boolean, diagnostics: String): Unit = {
    if (!ended && app != null) {
      ended = true
      inbox.put(Touch)
      worker.join(ResourceManagerClient.CallTimeout.toMillis)
      closeStream()
      val body = objectOf(
        client.json,
        "attempt" -> attempt,
        "succeeded" -> succeeded,
        "diagnostics" -> diagnostics,
        "job" -> listener.jobPatch(full = true))
      retry(deadlineMs = 30000)(client.post(s"/v1/apps/$app/finish", body))
    }
  }

  private def closeStream(): Unit = {
    val open = stream
    if (open != null) {
      try open.close()
      catch { case _: IOException => () }
    }
  }

  private def retry[T](deadlineMs: Long)(call: => T): Unit = {
    val until = System.currentTimeMillis() + deadlineMs
    var done = false
    while (!done) {
      try {
        call
        done = true
      } catch {
        case refused: ManagerRefusal if refused.isFinal =>
          logWarning(s"the resource manager refused the end of $app: ${refused.getMessage}")
          done = true
        case error: IOException =>
          if (System.currentTimeMillis() > until) {
            logWarning(s"the end of $app could not be reported to ${client.address}: $error")
            done = true
          } else Thread.sleep(500)
      }
    }
  }

  private def register(): JsonNode = {
    val reply = client.post(
      s"/v1/apps/$app/register",
      objectOf(client.json, "attempt" -> attempt))
    epoch = reply.get("epoch").asLong
    received = reply.get("cursor").asLong
    acknowledged = received
    largestMiB = reply.get("largest").get("memory").asLong >> 20
    unsent ++= requests.collect {
      case (executor, state) if !state.ended && !state.withdrawn => executor
    }
    viewIsFull = false
    reply.get("containers").forEach { grant => allocated(grant) }
    reply
  }

  // ---- the thread of the session

  private def run(): Unit = {
    var lastAnswer = System.currentTimeMillis()
    var pause = SyncIntervalMs
    var again = false
    while (!ended) {
      val first = if (again) inbox.poll() else inbox.poll(pause, TimeUnit.MILLISECONDS)
      var command = first
      while (command != null) {
        handle(command)
        command = inbox.poll()
      }
      again = false
      pause = SyncIntervalMs
      if (!ended) {
        try {
          if (sync()) lastAnswer = System.currentTimeMillis()
        } catch {
          case refused: ManagerRefusal if refused.code == OtherEpoch =>
            try {
              register()
              logInfo(s"registered $app again: the resource manager restarted, epoch $epoch")
              closeStream()
              again = true
            } catch {
              case refused: ManagerRefusal if refused.isFinal =>
                stopFor(s"the resource manager refused the registration: ${refused.getMessage}")
              case _: IOException => pause = RetryMs
            }
          case refused: ManagerRefusal if refused.isFinal =>
            stopFor(s"the resource manager refused the application: ${refused.getMessage}")
          case error: IOException =>
            logDebug(s"no answer from ${client.address}: $error")
            pause = RetryMs
          case error: Exception =>
            logError("a step of the session failed; it is repeated", error)
            pause = RetryMs
        }
        if (!ended && System.currentTimeMillis() - lastAnswer > settings.managerSilenceMs) {
          stopFor(s"no answer from the resource manager ${client.address} for " +
            s"${settings.managerSilenceMs / 1000} s (spark.headroom.managerTimeout)")
        }
      }
    }
  }

  private def stopFor(sentence: String): Unit = {
    ended = true
    closeStream()
    listener.over(sentence)
  }

  private def handle(command: SessionCommand): Unit = command match {
    case Touch => touched.set(false)
    case Ask(request) =>
      requests(request.executor) = new RequestState(request)
      unsent += request.executor
    case Release(executor) =>
      requests.get(executor).filterNot(_.ended).foreach { state =>
        state.container match {
          case Some(container) => releases += container
          case None =>
            // The grant may be on its way: it is released when it arrives.
            state.withdrawn = true
            drops += executor
            unsent -= executor
        }
      }
    case Update(line) => apply(line)
  }

  private def sync(): Boolean = {
    val asks = unsent.toSeq.take(MostAsksPerSync).flatMap(requests.get).filterNot(_.withdrawn)
    val dropped = drops.toSeq
    val released = releases.toSeq
    val acknowledge = received
    val patch = listener.jobPatch(full = !viewIsFull)
    val body = objectOf(
      client.json,
      "attempt" -> attempt,
      "epoch" -> epoch,
      "ack" -> acknowledge,
      "asks" -> asks.map(state => ask(state.request)),
      "drop" -> dropped.map(requestId),
      "release" -> released)
    patch.foreach(node => body.set[JsonNode]("job", node))
    val reply =
      try client.post(s"/v1/apps/$app/sync", body)
      catch {
        case error: IOException =>
          // Rows of the patch may be lost: the next one is complete.
          if (patch.isDefined) viewIsFull = false
          throw error
      }
    viewIsFull = true
    unsent --= asks.map(_.request.executor)
    drops --= dropped
    releases --= released
    acknowledged = acknowledge
    // A grant that comes after this answer belongs to no request, and is released.
    dropped
      .filter(executor => requests.get(executor).exists(state => state.ended || state.withdrawn))
      .foreach(requests.remove)
    reply.get("verdicts").forEach { verdict =>
      if (field(verdict, "verdict").exists(_.asText == "never")) {
        val executor = executorOf(verdict.get("request").asText)
        executor.flatMap(requests.get).foreach { state =>
          state.ended = true
          requests -= state.request.executor
          listener.infeasible(state.request.executor, verdict.get("sentence").asText)
        }
      }
    }
    if (reply.get("stop").asBoolean) {
      stopFor("the application was killed; `rmctl ps` and `rmctl describe` show by whom")
    }
    true
  }

  private def ask(request: ExecutorRequest): JsonNode = objectOf(
    client.json,
    "request" -> requestId(request.executor),
    "count" -> 1,
    "priority" -> request.priority,
    "resource" -> Map("memory" -> (request.size.memory << 20), "cpus" -> request.size.cores),
    "avoid_nodes" -> request.avoidedNodes,
    "placement" -> Map("prefer_nodes" -> request.preferredNodes, "labels" -> request.nodeLabels),
    "launch" -> request.launch)

  private def requestId(executor: String): String = s"executor-$attemptNumber-$executor"

  private def executorOf(request: String): Option[String] = {
    val prefix = s"executor-$attemptNumber-"
    if (request.startsWith(prefix)) Some(request.substring(prefix.length)) else None
  }

  private def allocated(grant: JsonNode): Unit = {
    val container = grant.get("container").asText
    executorOf(grant.get("request").asText).flatMap(requests.get) match {
      case Some(state) if !state.withdrawn && !state.ended =>
        if (state.container.isEmpty) {
          state.container = Some(container)
          listener.granted(state.request.executor, container, grant.get("node").asText)
        }
      case Some(_) | None =>
        // Withdrawn, or of an earlier run of the driver.
        releases += container
    }
  }

  private def apply(line: JsonNode): Unit = {
    val cursor = line.get("cursor").asLong
    if (cursor > received || line.get("kind").asText == "alive") {
      received = math.max(received, cursor)
      line.get("kind").asText match {
        case "allocated" => allocated(line)
        case "exited" =>
          val end = containerEnd(line.get("report"))
          executorOf(line.get("request").asText).foreach { executor =>
            requests.remove(executor).foreach { state =>
              state.ended = true
              drops += executor
              listener.exited(executor, end)
            }
          }
        case "preempt_soon" =>
          val container = line.get("container").asText
          requests.values.find(_.container.contains(container)).foreach { state =>
            listener.preemptSoon(state.request.executor, line.get("why").asText)
          }
        case "node_draining" => listener.nodeDraining(line.get("node").asText)
        case _ => ()
      }
    }
  }

  // ---- the thread of the stream

  private def readUpdates(): Unit = {
    while (!ended) {
      try {
        val open = client.lines(s"/v1/apps/$app/updates?epoch=$epoch&cursor=$received")
        stream = open
        var line = open.readLine()
        while (line != null && !ended) {
          while (inbox.size() >= MostQueued && !ended) Thread.sleep(RetryMs)
          if (line.nonEmpty) inbox.put(Update(client.json.readTree(line)))
          line = open.readLine()
        }
      } catch {
        case error: IOException => logDebug(s"the stream of updates ended: $error")
        case error: Exception => logWarning(s"the stream of updates failed: $error")
      }
      if (!ended) Thread.sleep(RetryMs)
    }
  }
}

private[headroom] object ApplicationSession {

  /** Longest time between two syncs; the resource manager allows 30 s. */
  val SyncIntervalMs = 2000L

  /** Pause before a call is repeated. */
  val RetryMs = 300L

  private val OtherEpoch = "HR0410"
  private val MostAsksPerSync = 200

  /** Updates that wait for the thread of the session; the resource manager keeps the others. */
  private val MostQueued = 10000

  private final class RequestState(val request: ExecutorRequest) {
    var container: Option[String] = None
    var withdrawn = false
    var ended = false
  }

  private sealed trait SessionCommand
  private final case class Ask(request: ExecutorRequest) extends SessionCommand
  private final case class Release(executor: String) extends SessionCommand
  private final case class Update(line: JsonNode) extends SessionCommand
  private case object Touch extends SessionCommand

  /** A name of an application, from the name of a Spark application. */
  def applicationName(text: String): String = {
    val letters = text.map(letter =>
      if (letter < 128 && (letter.isLetterOrDigit || letter == '-' || letter == '_')) letter else '-')
    val name = letters.dropWhile(!_.isLetterOrDigit).take(48).reverse.dropWhile(!_.isLetterOrDigit).reverse
    if (name.isEmpty) "spark" else name
  }

  /** The report of a node on the end of a container. */
  def containerEnd(report: JsonNode): ContainerEnd = {
    def number(names: String*): Option[Long] = field(report, names: _*).map(_.asLong)
    val diagnosis = field(report, "diagnosis").filter(_.size() > 0).map(_.get(0))
    def heapValue(name: String): Option[Long] = number("evidence", "heap", name)
    ContainerEnd(
      container = report.get("container").asText,
      node = report.get("node").asText,
      reason = report.get("reason").get("kind").asText,
      exitCode = number("evidence", "exit_code").map(_.toInt),
      signal = number("evidence", "signal").map(_.toInt),
      limit = number("evidence", "own", "limit"),
      peak = number("evidence", "own", "peak"),
      heapBudget = number("evidence", "heap_budget"),
      heapUsed = heapValue("used"),
      cause = diagnosis.flatMap(field(_, "cause")).map(_.asText),
      fix = diagnosis.flatMap(field(_, "fix")).map(_.asText),
      logTail = field(report, "log_tail").map(_.asText).getOrElse(""),
      startedMs = number("started"),
      endedMs = number("ended").getOrElse(System.currentTimeMillis()),
      report = report)
  }
}
