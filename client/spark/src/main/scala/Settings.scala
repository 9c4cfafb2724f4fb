package org.apache.spark.scheduler.headroom

import java.io.File
import java.util.Locale

import org.apache.spark.{SparkConf, SparkContext, SparkException}
import org.apache.spark.network.util.{ByteUnit, JavaUtils}

/**
 * Settings of the plugin, `spark.headroom.*`, and the executor that Spark's own settings describe.
 * Checked when the context is created.
 */
private[headroom] final case class Settings(
    mode: MemoryFailureMode,
    /** The configured executor. */
    executor: ExecutorSize,
    cpusPerTask: Int,
    /** Most executors above the configured size at one time. */
    mostLargeExecutors: Int,
    /** Time without tasks after which a larger executor is released, ms. */
    largeIdleMs: Long,
    /** Longest wait for the report of the node after an executor disconnected, ms. */
    lossReportMs: Long,
    /** Longest time without any answer of the resource manager, ms. */
    managerSilenceMs: Long,
    /** Whether the overhead of a running executor grows before it is killed. */
    growInPlace: Boolean,
    /** Whether tasks start with the memory that they needed in an earlier run of the application. */
    learnAcrossRuns: Boolean,
    /** Executors that fail before they register, in a row, before the application ends. */
    mostFailedStarts: Int,
    queue: Option[String],
    /** Labels that the nodes of the executors must have. */
    nodeLabels: Seq[String],
    sparkHome: String,
    javaHome: String)

private[headroom] object Settings {

  def of(sc: SparkContext): Settings = of(sc.conf)

  def of(conf: SparkConf): Settings = {
    val modeName = conf.get("spark.headroom.memory.mode", "headroom").toLowerCase(Locale.ROOT)
    val mode = MemoryFailureMode.parse(modeName).getOrElse(
      throw bad("spark.headroom.memory.mode", modeName,
        "use " + MemoryFailureMode.All.map(_.name).mkString(", ")))
    val size = executorSize(conf)
    val cpusPerTask = positive(conf, "spark.task.cpus", 1)
    if (cpusPerTask > size.cores) {
      throw bad("spark.task.cpus", cpusPerTask.toString,
        s"a task needs more processors than an executor has (spark.executor.cores ${size.cores})")
    }
    Settings(
      mode = mode,
      executor = size,
      cpusPerTask = cpusPerTask,
      mostLargeExecutors = positive(conf, "spark.headroom.largeExecutors.max", 4),
      largeIdleMs = millis(conf, "spark.headroom.largeExecutors.idleTimeout", "10s"),
      lossReportMs = millis(conf, "spark.headroom.lossReportTimeout", "60s"),
      managerSilenceMs = millis(conf, "spark.headroom.managerTimeout", "10min"),
      growInPlace = conf.getBoolean("spark.headroom.growInPlace", defaultValue = true),
      learnAcrossRuns = conf.getBoolean("spark.headroom.memory.learnAcrossRuns", defaultValue = true),
      mostFailedStarts = positive(conf, "spark.headroom.maxFailedStarts", 3),
      queue = conf.getOption("spark.headroom.queue"),
      nodeLabels = conf.get("spark.headroom.nodeLabels", "").split(",").map(_.trim)
        .filter(_.nonEmpty).toSeq,
      sparkHome = sparkHome(conf),
      javaHome = conf.getOption("spark.headroom.javaHome")
        .orElse(conf.getOption("spark.executorEnv.JAVA_HOME"))
        .getOrElse(System.getProperty("java.home")))
  }

  /** Heap, off-heap, overhead and Python memory, as Spark computes them for YARN and Kubernetes. */
  def executorSize(conf: SparkConf): ExecutorSize = {
    val heap = mib(conf, "spark.executor.memory", "1g")
    val least = mib(conf, "spark.executor.minMemoryOverhead", "384m")
    val factor = conf.getDouble("spark.executor.memoryOverheadFactor", 0.1)
    val overhead =
      if (conf.contains("spark.executor.memoryOverhead")) {
        mib(conf, "spark.executor.memoryOverhead", "384m")
      } else {
        math.max((heap * factor).toLong, least)
      }
    val offHeap =
      if (!conf.getBoolean("spark.memory.offHeap.enabled", defaultValue = false)) 0L
      else {
        val bytes = JavaUtils.byteStringAsBytes(conf.get("spark.memory.offHeap.size", "0"))
        (bytes + (1 << 20) - 1) >> 20
      }
    val python =
      if (!isPython(conf)) 0L
      else conf.getOption("spark.executor.pyspark.memory")
        .map(_ => mib(conf, "spark.executor.pyspark.memory", "0")).getOrElse(0L)
    ExecutorSize(heap, offHeap, overhead, python, positive(conf, "spark.executor.cores", 1))
  }

  private def isPython(conf: SparkConf): Boolean =
    conf.getBoolean("spark.yarn.isPython", defaultValue = false) ||
      conf.contains("spark.executor.pyspark.memory")

  private def sparkHome(conf: SparkConf): String =
    conf.getOption("spark.headroom.sparkHome")
      .orElse(sys.env.get("SPARK_HOME"))
      .orElse(jarFolder)
      .getOrElse(throw new SparkException(
        "the directory of Spark on the nodes is not known; set SPARK_HOME or spark.headroom.sparkHome"))

  /** The parent of the folder that contains spark-core. */
  private def jarFolder: Option[String] =
    Option(classOf[SparkContext].getProtectionDomain.getCodeSource)
      .map(source => new File(source.getLocation.toURI).getParentFile)
      .filter(_.getName == "jars")
      .map(_.getParent)

  private def mib(conf: SparkConf, key: String, default: String): Long = {
    val text = conf.get(key, default)
    try JavaUtils.byteStringAs(text, ByteUnit.MiB)
    catch {
      case _: NumberFormatException => throw bad(key, text, "give a size such as 512m or 2g")
    }
  }

  private def millis(conf: SparkConf, key: String, default: String): Long = {
    val text = conf.get(key, default)
    try JavaUtils.timeStringAsMs(text)
    catch {
      case _: NumberFormatException => throw bad(key, text, "give a duration such as 500ms or 30s")
    }
  }

  private def positive(conf: SparkConf, key: String, default: Int): Int = {
    val text = conf.get(key, default.toString)
    scala.util.Try(text.trim.toInt).toOption match {
      case Some(number) if number >= 1 => number
      case _ => throw bad(key, text, "give a whole number of at least 1")
    }
  }

  private def bad(key: String, value: String, fix: String): SparkException =
    new SparkException(s"$key = $value: $fix")
}
