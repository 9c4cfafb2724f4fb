package org.apache.spark.scheduler.headroom

import java.net.{InetAddress, InetSocketAddress, URI, URLDecoder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{ExecutorService, Executors, TimeUnit}

import com.sun.net.httpserver.{HttpExchange, HttpServer}

/**
 * A resource manager that answers `GET /v1/leader`. It accepts all other calls, and answers them only
 * while `answers` is set.
 */
private[headroom] final class FakeManager {

  private val server =
    HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress, 0), 0)
  private val threads: ExecutorService = Executors.newCachedThreadPool()

  val address: URI = URI.create(s"http://127.0.0.1:${server.getAddress.getPort}")

  // Guarded by this object.
  private var isAnswering = false
  private var isClosed = false
  private var calls = Vector.empty[String]
  private var questions = Vector.empty[String]

  /** The leader that it names, and the one that it names to a caller that waits for a change. */
  @volatile var leader: URI = address
  @volatile var leaderAfterWait: URI = _

  /** Is called with the number of each question for the leader, from 1. */
  @volatile var onQuestion: Int => Unit = (_: Int) => ()

  server.createContext("/", exchange => handle(exchange))
  server.setExecutor(threads)
  server.start()

  /** Answers calls that wait, and later ones. */
  def answers_=(value: Boolean): Unit = synchronized {
    isAnswering = value
    notifyAll()
  }

  def answers: Boolean = synchronized(isAnswering)

  /** Method and path of the calls, without questions for the leader. */
  def received: Seq[String] = synchronized(calls)

  /** The leaders that questions named; the empty text for a question without one. */
  def otherThan: Seq[String] = synchronized(questions)

  def close(): Unit = {
    synchronized {
      isClosed = true
      notifyAll()
    }
    server.stop(0)
    threads.shutdownNow()
    threads.awaitTermination(5, TimeUnit.SECONDS)
  }

  private def handle(exchange: HttpExchange): Unit = {
    val path = exchange.getRequestURI.getPath
    exchange.getRequestBody.readAllBytes()
    if (path == "/v1/leader") answerLeader(exchange)
    else if (path == "/v1/stream") beginStream(exchange)
    else {
      synchronized {
        calls :+= s"${exchange.getRequestMethod} $path"
        while (!isAnswering && !isClosed) wait()
      }
      reply(exchange, s"""{"of":"$address"}""")
    }
  }

  /** A stream with one line, which has no end before the manager is closed. */
  private def beginStream(exchange: HttpExchange): Unit = {
    exchange.sendResponseHeaders(200, 0)
    exchange.getResponseBody.write(s"$address\n".getBytes(UTF_8))
    exchange.getResponseBody.flush()
    synchronized { while (!isClosed) wait() }
    exchange.close()
  }

  private def answerLeader(exchange: HttpExchange): Unit = {
    val query = Option(exchange.getRequestURI.getRawQuery).getOrElse("")
    val named = query.split('&').find(_.startsWith("other_than=")).fold("")(_.drop(11))
    val number = synchronized {
      questions :+= URLDecoder.decode(named, UTF_8)
      questions.size
    }
    onQuestion(number)
    val waits = named.nonEmpty && query.contains("wait=")
    val answer = if (waits && leaderAfterWait != null) leaderAfterWait else leader
    reply(exchange, s"""{"own":"$address","leader":"$answer","problem":null}""")
  }

  private def reply(exchange: HttpExchange, text: String): Unit = {
    val bytes = s"$text\n".getBytes(UTF_8)
    exchange.sendResponseHeaders(200, bytes.length.toLong)
    exchange.getResponseBody.write(bytes)
    exchange.close()
  }
}
