package org.apache.spark.scheduler.headroom

/** Types that differ between versions of Spark: Spark 4.0 to 4.2. */
private[headroom] object Shim {

  /** Processors of a task. */
  type Cpus = Int

  /** Resources such as GPUs that are assigned to a task, in internal fractions. */
  type TaskResources = Map[String, Map[String, Long]]

  /** Versions for which this jar is built. */
  val SupportedVersions: Seq[String] = Seq("4.0", "4.1", "4.2")

  def cpus(count: Int): Cpus = count

  def wholeCpus(cpus: Cpus): Int = cpus
}
