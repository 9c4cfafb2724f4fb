package org.apache.spark.scheduler.headroom

import java.io.IOException
import java.net.{URI, URLEncoder}
import java.net.http.{HttpClient, HttpRequest, HttpResponse, HttpTimeoutException}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.concurrent.{CancellationException, CompletableFuture, CompletionException}
import java.util.concurrent.{ExecutionException, Future, TimeUnit, TimeoutException}

import com.fasterxml.jackson.databind.ObjectMapper

/** Another manager leads, and the call has no answer. */
private[headroom] final class LeaderReplaced(val leader: URI)
    extends IOException(s"it does not answer, and $leader leads now")

/**
 * Detection of a new leader while a call has no answer. A leader that is paused, or whose host has
 * ended, does not answer and refuses no connection. The other managers know when another one leads,
 * so a call that waits asks one of them. That answers when the leader changes.
 */
private[headroom] final class LeaderChange(
    addresses: ManagerAddresses,
    http: HttpClient,
    json: ObjectMapper) {

  import LeaderChange._

  /**
   * The answer to a call that was sent to `target`. Ends the call at the deadline, a value of
   * `System.nanoTime`, and with [[LeaderReplaced]] when another manager leads instead of `target`.
   */
  def answerOf[T](call: CompletableFuture[T], target: URI, deadline: Long): T =
    try {
      replacementOf(target, call, deadline).foreach(leader => throw new LeaderReplaced(leader))
      call.get(nanosUntil(deadline), TimeUnit.NANOSECONDS)
    } catch {
      case failed: ExecutionException => throw failed.getCause
      case _: TimeoutException => throw new HttpTimeoutException("no answer before the timeout")
    } finally {
      // Changes nothing after the end of the call.
      call.cancel(true)
    }

  /** The leader that replaced the one at `target`. `None` if the call ends first. */
  private def replacementOf(
      target: URI,
      call: CompletableFuture[_],
      deadline: Long): Option[URI] = {
    val others = addresses.others(target)
    var before = Option.empty[String]
    var replacement = Option.empty[URI]
    var asked = 0
    var isPending = others.nonEmpty && isStillPending(call, Stalled, deadline)
    while (isPending) {
      // A manager that answers is asked until it fails; then the next one.
      leaderAccordingTo(others(asked % others.size), before, call, deadline) match {
        case Some(named) =>
          replacement = addresses.replacement(target, named, before)
          before = Some(named)
        case None => asked += 1
      }
      isPending = replacement.isEmpty && isStillPending(call, Again, deadline)
    }
    replacement
  }

  /**
   * The leader that the manager at `address` knows: after a change if it is `before`. `None` if it
   * does not answer or does not know, and when the call ends.
   */
  private def leaderAccordingTo(
      address: URI,
      before: Option[String],
      call: CompletableFuture[_],
      deadline: Long): Option[String] = {
    val query = before.fold("") { leader =>
      s"?other_than=${URLEncoder.encode(leader, UTF_8)}&wait=${Wait.toMillis}ms"
    }
    val most = if (before.isEmpty) Answer else Wait.plus(Answer)
    val request = HttpRequest.newBuilder(address.resolve(s"/v1/leader$query")).timeout(most).build()
    val question = http.sendAsync(request, HttpResponse.BodyHandlers.ofString(UTF_8))
    try {
      isStillPending(CompletableFuture.anyOf(call, question), most, deadline)
      Option(question.getNow(null))
        .filter(_.statusCode() == 200)
        .map(response => json.readTree(response.body()))
        .filter(view => ResourceManagerClient.field(view, "problem").isEmpty)
        .flatMap(view => ResourceManagerClient.field(view, "leader"))
        .map(_.asText)
    } catch {
      case _: CompletionException | _: IOException => None
    } finally {
      question.cancel(true)
    }
  }
}

private[headroom] object LeaderChange {

  /** Time without an answer after which another manager is asked. */
  private val Stalled = Duration.ofMillis(500)

  /** Longest time for which the other manager is asked to wait for a change. */
  private val Wait = Duration.ofSeconds(10)

  /** Time for the answer itself. */
  private val Answer = Duration.ofSeconds(1)

  /** Pause between two questions. */
  private val Again = Duration.ofMillis(200)

  private def nanosUntil(deadline: Long): Long = math.max(0L, deadline - System.nanoTime())

  /** Waits for the end of a call. True if it has no end after `most`, and the deadline is later. */
  private def isStillPending(call: Future[_], most: Duration, deadline: Long): Boolean =
    try {
      call.get(math.min(most.toNanos, nanosUntil(deadline)), TimeUnit.NANOSECONDS)
      false
    } catch {
      case _: TimeoutException => nanosUntil(deadline) > 0
      case _: ExecutionException | _: CancellationException => false
    }
}
