package org.apache.spark.scheduler.headroom

import java.io.{BufferedReader, File, IOException, InputStream, InputStreamReader}
import java.net.{ConnectException, URI}
import java.net.http.{HttpClient, HttpConnectTimeoutException, HttpRequest, HttpResponse}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.security.KeyStore
import java.security.cert.CertificateFactory
import java.time.Duration
import javax.net.ssl.{SSLContext, SSLHandshakeException, TrustManagerFactory}

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.{SparkConf, SparkException}

/** An error answer of the resource manager. `leader` is the address that a standby named. */
private[headroom] final class ManagerRefusal(
    val status: Int,
    val code: String,
    sentence: String,
    val isStandby: Boolean = false,
    val leader: Option[String] = None)
    extends IOException(s"$sentence ($code)") {

  /** True if the same call fails again. */
  def isFinal: Boolean = status < 500 && status != 429 && !isStandby
}

/** The lines of a stream. */
private[headroom] final class LineStream(input: InputStream) extends AutoCloseable {

  private val reader = new BufferedReader(new InputStreamReader(input, UTF_8))

  /** The next line; null at the end. */
  def readLine(): String = reader.readLine()

  /**
   * Ends the stream, also for a thread that waits in `readLine`. That thread holds the lock of the
   * reader, whose own `close` would wait for a manager that is silent.
   */
  override def close(): Unit = input.close()
}

/** None of several resource managers answered as the leader. */
private[headroom] final class NoLeader(failures: Seq[(URI, IOException)])
    extends IOException(
      failures
        .map { case (address, cause) => s"$address: ${Option(cause.getMessage).getOrElse(cause)}" }
        .mkString("no resource manager answers as leader: ", "; ", ""),
      failures.last._2)

/**
 * HTTP calls to the leader among the resource managers. Every call has a deadline, and leaves a silent
 * manager when another one leads. A call is sent to another address only if nothing was sent before,
 * a standby answered, or it changes nothing.
 */
private[headroom] final class ResourceManagerClient(
    addresses: ManagerAddresses,
    http: HttpClient,
    token: Option[String]) {

  val json = new ObjectMapper()

  private val leaderChange = new LeaderChange(addresses, http, json)

  def hasToken: Boolean = token.isDefined

  /** The addresses, for messages. */
  def address: String = addresses.toString

  /** The address at which the next call begins. */
  def currentAddress: String = addresses.current.toString

  def get(path: String): JsonNode =
    send(repeatable = true)((base, deadline) => answer(request(base, path).GET(), base, deadline))

  def post(path: String, body: JsonNode): JsonNode = {
    val text = json.writeValueAsString(body)
    send(repeatable = false) { (base, deadline) =>
      answer(
        request(base, path)
          .header("Content-Type", "application/json")
          .POST(HttpRequest.BodyPublishers.ofString(text, UTF_8)),
        base,
        deadline)
    }
  }

  /** The lines of a stream, until it ends or is closed. */
  def lines(path: String): LineStream = send(repeatable = true) { (base, deadline) =>
    val call = http.sendAsync(
      request(base, path).GET().build(), HttpResponse.BodyHandlers.ofInputStream())
    val response = leaderChange.answerOf(call, base, deadline)
    if (response.statusCode() != 200) {
      throw refusal(response, readAll(response.body()))
    }
    new LineStream(response.body())
  }

  /**
   * Sends a call to the leader. `attempt` sends it to one address, and waits for its answer until a
   * deadline, a value of `System.nanoTime`.
   */
  private def send[T](repeatable: Boolean)(attempt: (URI, Long) => T): T = {
    val deadline = System.nanoTime() + ResourceManagerClient.CallTimeout.toNanos
    val route = addresses.begin(repeatable)
    var failures = Vector.empty[(URI, IOException)]
    var result = Option.empty[T]
    while (result.isEmpty) {
      val target = route.target
      try {
        result = Some(attempt(target, deadline))
        addresses.answered(route)
      } catch {
        case refused: ManagerRefusal if !refused.isStandby =>
          addresses.answered(route)
          throw refused
        case error: IOException =>
          failures :+= ((target, error))
          val outcome = ResourceManagerClient.outcome(error)
          val goesOn = addresses.failed(route, outcome) && System.nanoTime() < deadline
          if (!goesOn) {
            val mayBeDone = !repeatable && outcome.mayBeExecuted
            throw (if (failures.size == 1 || mayBeDone) error else new NoLeader(failures))
          }
      }
    }
    result.get
  }

  private def request(base: URI, path: String): HttpRequest.Builder =
    HttpRequest.newBuilder(base.resolve(path)).headers(headers: _*)

  private def headers: Seq[String] =
    Seq("Accept", "application/json") ++
      token.toSeq.flatMap(secret => Seq("Authorization", s"Bearer $secret"))

  private def answer(request: HttpRequest.Builder, base: URI, deadline: Long): JsonNode = {
    val bounded = request.timeout(ResourceManagerClient.CallTimeout).build()
    val call = http.sendAsync(bounded, HttpResponse.BodyHandlers.ofString(UTF_8))
    val response = leaderChange.answerOf(call, base, deadline)
    if (response.statusCode() / 100 != 2) {
      throw refusal(response, response.body())
    }
    if (response.body().isEmpty) json.createObjectNode() else json.readTree(response.body())
  }

  private def refusal(response: HttpResponse[_], body: String): ManagerRefusal = {
    val (status, answered) = (response.statusCode(), response.headers())
    val parsed =
      try Option(json.readTree(body))
      catch { case _: IOException => None }
    def text(field: String): Option[String] =
      parsed.flatMap(ResourceManagerClient.field(_, field)).filter(_.isTextual).map(_.asText)
    val sentence = text("detail").orElse(text("title")).getOrElse(body.take(300))
    new ManagerRefusal(
      status,
      text("code").getOrElse(s"HTTP $status"),
      sentence,
      status == 421 || (status == 503 && answered.firstValue("headroom-standby").isPresent),
      Option(answered.firstValue("headroom-leader").orElse(null)))
  }

  private def readAll(stream: InputStream): String =
    try new String(stream.readNBytes(65536), UTF_8)
    finally stream.close()
}

private[headroom] object ResourceManagerClient {

  /** Longest time for one call. */
  val CallTimeout: Duration = Duration.ofSeconds(15)

  /** Timeout of a connection attempt to the only address, and to one of several. */
  private val ConnectTimeout = Duration.ofSeconds(5)
  private val ListedConnectTimeout = Duration.ofSeconds(1)

  /**
   * A client with the token and certificate of the configuration: `spark.headroom.token`,
   * `spark.headroom.tokenFile`, `HEADROOM_TOKEN`, `HEADROOM_TOKEN_FILE`, and
   * `spark.headroom.caFile`, `HEADROOM_CA_FILE`.
   */
  def connect(addresses: Seq[URI], conf: SparkConf): ResourceManagerClient = {
    val builder = HttpClient
      .newBuilder()
      .version(HttpClient.Version.HTTP_1_1)
      .connectTimeout(if (addresses.size == 1) ConnectTimeout else ListedConnectTimeout)
    conf.getOption("spark.headroom.caFile").orElse(sys.env.get("HEADROOM_CA_FILE"))
      .filter(_ => addresses.head.getScheme == "https")
      .foreach(file => builder.sslContext(trusting(file)))
    val secret = token(conf)
    new ResourceManagerClient(
      new ManagerAddresses(addresses, secret.isDefined), builder.build(), secret)
  }

  /** The outcome that an error of an attempt means. */
  private def outcome(error: IOException): SendOutcome = error match {
    case refused: ManagerRefusal => SendOutcome.Standby(refused.leader)
    case replaced: LeaderReplaced => SendOutcome.Replaced(replaced.leader)
    case _: ConnectException | _: HttpConnectTimeoutException | _: SSLHandshakeException =>
      SendOutcome.NotConnected
    case _ => SendOutcome.Interrupted
  }

  private def token(conf: SparkConf): Option[String] =
    conf.getOption("spark.headroom.token")
      .orElse(conf.getOption("spark.headroom.tokenFile").map(readFile("spark.headroom.tokenFile", _)))
      .orElse(sys.env.get("HEADROOM_TOKEN"))
      .orElse(sys.env.get("HEADROOM_TOKEN_FILE").map(readFile("HEADROOM_TOKEN_FILE", _)))
      .map(_.trim)
      .filter(_.nonEmpty)

  private def readFile(key: String, path: String): String =
    try new String(Files.readAllBytes(Paths.get(path)), UTF_8)
    catch {
      case error: IOException =>
        throw new SparkException(s"$key names $path, which cannot be read: $error", error)
    }

  private def trusting(path: String): SSLContext = {
    val keys = KeyStore.getInstance(KeyStore.getDefaultType)
    keys.load(null, null)
    val stream = Files.newInputStream(new File(path).toPath)
    try {
      CertificateFactory.getInstance("X.509").generateCertificates(stream).toArray.zipWithIndex
        .foreach { case (certificate, index) =>
          keys.setCertificateEntry(
            s"headroom-$index", certificate.asInstanceOf[java.security.cert.Certificate])
        }
    } finally stream.close()
    val trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm)
    trust.init(keys)
    val context = SSLContext.getInstance("TLS")
    context.init(null, trust.getTrustManagers, null)
    context
  }

  /** Fields of a JSON object by name; absent and null fields are `None`. */
  def field(node: JsonNode, names: String*): Option[JsonNode] =
    names.foldLeft(Option(node)) { (at, name) =>
      at.flatMap(object_ => Option(object_.get(name))).filterNot(_.isNull)
    }

  def objectOf(json: ObjectMapper, fields: (String, Any)*): ObjectNode = {
    val node = json.createObjectNode()
    fields.foreach { case (name, value) => put(json, node, name, value) }
    node
  }

  private def put(json: ObjectMapper, node: ObjectNode, name: String, value: Any): Unit = {
    node.set[JsonNode](name, toNode(json, value))
    ()
  }

  private def toNode(json: ObjectMapper, value: Any): JsonNode = value match {
    case null | None => json.nullNode()
    case Some(inner) => toNode(json, inner)
    case node: JsonNode => node
    case text: String => json.getNodeFactory.textNode(text)
    case flag: Boolean => json.getNodeFactory.booleanNode(flag)
    case number: Int => json.getNodeFactory.numberNode(number)
    case number: Long => json.getNodeFactory.numberNode(number)
    case number: BigInt => json.getNodeFactory.numberNode(number.bigInteger)
    case map: scala.collection.Map[_, _] =>
      val node = json.createObjectNode()
      map.foreach { case (key, inner) => put(json, node, key.toString, inner) }
      node
    case items: Iterable[_] =>
      val node = json.createArrayNode()
      items.foreach(item => node.add(toNode(json, item)))
      node
    case other => throw new IllegalArgumentException(s"no JSON form for ${other.getClass}")
  }
}
