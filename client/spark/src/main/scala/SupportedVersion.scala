package org.apache.spark.scheduler.headroom

import java.util.Properties

import org.apache.spark.SparkException

/** Compares the running Spark with the Spark that the jar was built for. */
private[headroom] object SupportedVersion {

  /** Fails with both versions in one sentence. Uses no class that differs between versions. */
  def check(): Unit = {
    val built = new Properties()
    val stream = getClass.getResourceAsStream("/org/apache/spark/scheduler/headroom/build.properties")
    if (stream == null) {
      throw new SparkException("the Headroom jar has no build.properties; build it with client/spark/build")
    }
    try built.load(stream)
    finally stream.close()
    explain(
      built.getProperty("spark"),
      built.getProperty("scala"),
      org.apache.spark.SPARK_VERSION,
      scala.util.Properties.versionNumberString) match {
      case null => ()
      case sentence => throw new SparkException(sentence)
    }
  }

  /**
   * The sentence for users, or null for a supported version.
   *
   * `sparks` are the versions that the jar supports, separated by commas, such as `4.0,4.1,4.2`;
   * `scala` is the binary version of Scala, such as `2.13`.
   */
  def explain(sparks: String, scala: String, runningSpark: String, runningScala: String): String = {
    // No collections here: their classes differ between Scala 2.12 and 2.13.
    val sparkFits = ("," + sparks + ",").contains("," + firstTwo(runningSpark) + ",")
    if (sparkFits && firstTwo(runningScala) == scala) {
      null
    } else {
      "this Headroom jar was built for Spark " + sparks.replace(",", ", ") + " with Scala " + scala +
        ", and this is Spark " + runningSpark + " with Scala " + runningScala +
        "; use the jar of your version, built with client/spark/build --spark-home \"$SPARK_HOME\""
    }
  }

  private def firstTwo(version: String): String = {
    val parts = version.split("\\.")
    if (parts.length < 2) version else parts(0) + "." + parts(1)
  }
}
