package org.apache.spark.scheduler.headroom

/** Types that differ between versions of Spark: Spark 4.3. */
private[headroom] object Shim {

  /** Processors of a task; may be a fraction. */
  type Cpus = BigDecimal

  /** Resources such as GPUs that are assigned to a task, in internal fractions. */
  type TaskResources = Map[String, Map[String, Long]]

  /** Versions for which this jar is built. */
  val SupportedVersions: Seq[String] = Seq("4.3")

  def cpus(count: Int): Cpus = BigDecimal(count)

  def wholeCpus(cpus: Cpus): Int = cpus.setScale(0, BigDecimal.RoundingMode.CEILING).toInt
}
