package org.apache.spark.deploy.headroom

import java.io.{File, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path, Paths}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import org.apache.spark.{SecurityManager, SparkConf}
import org.apache.spark.deploy.ExternalShuffleService
import org.apache.spark.internal.Logging
import org.apache.spark.network.util.TransportConf
import org.apache.spark.util.ThreadUtils

/**
 * Spark's external shuffle service as an auxiliary service of a node.
 *
 * Beyond Spark's own main class it knows the secret of each application
 * (`spark.authenticate=true`), forgets an application when the node agent has removed its
 * directory, and keeps the registered executors over a restart. `HEADROOM_APPS_DIR` contains the
 * directories of the applications.
 */
object ShuffleService extends Logging {

  /** File with the secret of an application, in its directory. */
  val SecretFile = ".shuffle-secret"

  private val CleanupSeconds = 30L

  def main(arguments: Array[String]): Unit = {
    val conf = new SparkConf()
    conf.set("spark.shuffle.service.enabled", "true")
    val directory = Paths.get(sys.env.getOrElse("HEADROOM_APPS_DIR", {
      System.err.println(
        "HEADROOM_APPS_DIR is not set: this program is started by a node agent, as [aux_services.NAME]")
      sys.exit(2)
    }))
    val applications = ConcurrentHashMap.newKeySet[String]()
    val security = new ApplicationSecrets(conf, directory)
    val service = new ExternalShuffleService(conf, security) {

      override protected def newShuffleBlockHandler(transport: TransportConf) =
        new KnownApplicationsHandler(transport, findRegisteredExecutorsDBFile("registered"), applications)

      override protected def findRegisteredExecutorsDBFile(name: String): File =
        new File(System.getProperty("user.dir"), name)
    }
    service.start()
    val cleanup = ThreadUtils.newDaemonSingleThreadScheduledExecutor("headroom-shuffle-cleanup")
    cleanup.scheduleWithFixedDelay(
      () =>
        applications.forEach { application =>
          if (!Files.isDirectory(directory.resolve(application))) {
            applications.remove(application)
            service.applicationRemoved(application)
          }
        },
      CleanupSeconds,
      CleanupSeconds,
      TimeUnit.SECONDS)
    Runtime.getRuntime.addShutdownHook(new Thread(() => service.stop()))
    Thread.currentThread().join()
  }
}

/** Remembers the applications whose executors registered. */
private final class KnownApplicationsHandler(
    transport: TransportConf,
    registered: File,
    applications: java.util.Set[String])
    extends org.apache.spark.network.shuffle.ExternalBlockHandler(transport, registered) {

  override protected def handleMessage(
      message: org.apache.spark.network.shuffle.protocol.BlockTransferMessage,
      client: org.apache.spark.network.client.TransportClient,
      callback: org.apache.spark.network.client.RpcResponseCallback): Unit = {
    message match {
      case register: org.apache.spark.network.shuffle.protocol.RegisterExecutor =>
        applications.add(register.appId)
      case _ => ()
    }
    super.handleMessage(message, client, callback)
  }
}

/** The secret of each application, from the file that its executors wrote. */
private final class ApplicationSecrets(conf: SparkConf, directory: Path)
    extends SecurityManager(conf) {

  override def getSecretKey(application: String): String =
    // An application id is one path component.
    if (application.isEmpty || application.contains('/') || application.startsWith(".")) null
    else {
      val file = directory.resolve(application).resolve(ShuffleService.SecretFile)
      try new String(Files.readAllBytes(file), UTF_8).trim
      catch {
        case _: NoSuchFileException => null
        case error: IOException =>
          logWarning(s"the secret of $application cannot be read: $error")
          null
      }
    }
}
