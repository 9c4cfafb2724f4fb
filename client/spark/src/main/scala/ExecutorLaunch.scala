package org.apache.spark.scheduler.headroom

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.SparkConf
import org.apache.spark.util.Utils

/** The command of an executor, and its environment, as a launch specification of a container. */
private[headroom] object ExecutorLaunch {

  /** Exit codes by which an executor reports a full heap: 52 of Spark, 3 of the JVM. */
  val HeapExitCodes: Seq[Int] = Seq(52, 3)

  /** Leaves the secret of the application where the shuffle service of the node reads it. */
  private val WriteSecret: Seq[String] = Seq(
    "sh",
    "-c",
    """umask 027; f="$HEADROOM_APP_DIR/.shuffle-secret"; printf %s "$_SPARK_AUTH_SECRET" > "$f.$$" """ +
      """&& mv "$f.$$" "$f" && exec "$@"""",
    "spark-executor")

  def launch(
      json: ObjectMapper,
      conf: SparkConf,
      settings: Settings,
      executor: String,
      size: ExecutorSize,
      resourceProfile: Int,
      applicationId: String,
      driverUrl: String,
      managerAddress: String,
      executorEnvironment: Map[String, String],
      user: String): JsonNode = {
    val shuffleService = conf.getBoolean("spark.shuffle.service.enabled", defaultValue = false)
    val authenticated = authentication(conf)
    val command = (if (shuffleService && authenticated.isDefined) WriteSecret else Nil) ++
      javaCommand(conf, settings, size) ++
      Seq(
        "org.apache.spark.executor.CoarseGrainedExecutorBackend",
        "--driver-url", driverUrl,
        "--executor-id", executor,
        "--cores", size.cores.toString,
        "--app-id", applicationId,
        "--resourceProfileId", resourceProfile.toString)
    val logs = s"$managerAddress/v1/containers/{container}/logs"
    val environment = Map(
      "SPARK_USER" -> user,
      "SPARK_HOME" -> settings.sparkHome,
      "JAVA_HOME" -> settings.javaHome,
      // The directory of the application on the node outlives the container, so that a shuffle
      // service can serve the files of an executor that ended.
      "SPARK_EXECUTOR_DIRS" -> "{app_dir}",
      "SPARK_LOG_URL_STDOUT" -> s"$logs/stdout",
      "SPARK_LOG_URL_STDERR" -> s"$logs/stderr") ++
      loopbackOf(conf) ++
      conf.getOption("spark.executor.extraLibraryPath").map("LD_LIBRARY_PATH" -> _) ++
      authenticated ++
      executorEnvironment
    val services =
      if (shuffleService) {
        Seq("aux_services" -> Seq(conf.get("spark.headroom.shuffleService", "spark-shuffle")))
      } else Nil
    ResourceManagerClient.objectOf(
      json,
      Seq[(String, Any)](
        "command" -> command,
        "env" -> environment,
        "heap" -> (size.heap << 20),
        "heap_exit_codes" -> HeapExitCodes,
        "stop_grace_ms" -> 10000) ++ services: _*)
  }

  private def javaCommand(conf: SparkConf, settings: Settings, size: ExecutorSize): Seq[String] = {
    val options = Utils.splitCommandString(conf.get("spark.executor.defaultJavaOptions", "")) ++
      Utils.splitCommandString(conf.get("spark.executor.extraJavaOptions", ""))
    // The executor needs these before it can ask the driver for the others.
    val early = conf.getAll.toSeq.collect {
      case (key, value) if SparkConf.isExecutorStartupConf(key) && key != "spark.authenticate.secret" =>
        s"-D$key=$value"
    }
    val classPath = (conf.getOption("spark.executor.extraClassPath").toSeq :+
      s"${settings.sparkHome}/jars/*").mkString(":")
    // `options` contain the module options of Spark: the context adds them to the configuration.
    Seq(s"${settings.javaHome}/bin/java", "-server", s"-Xmx${size.heap}m") ++
      options ++
      early ++
      Seq("-cp", classPath)
  }

  /** The secret of the application, in the variable from which Spark's executors read it. */
  private def authentication(conf: SparkConf): Option[(String, String)] =
    if (conf.getBoolean("spark.authenticate", defaultValue = false)) {
      conf.getOption("spark.authenticate.secret").map("_SPARK_AUTH_SECRET" -> _)
    } else None

  /** A driver on the loopback interface can be reached only by executors that use it as well. */
  private def loopbackOf(conf: SparkConf): Map[String, String] =
    conf.getOption("spark.driver.host") match {
      case Some(host) if host == "localhost" || host.startsWith("127.") =>
        Map("SPARK_LOCAL_IP" -> "127.0.0.1")
      case _ => Map.empty
    }
}
