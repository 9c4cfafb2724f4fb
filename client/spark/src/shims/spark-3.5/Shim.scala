package org.apache.spark.scheduler.headroom

import org.apache.spark.resource.ResourceInformation

/** Types that differ between versions of Spark: Spark 3.5. */
private[headroom] object Shim {

  /** Processors of a task. */
  type Cpus = Int

  /** Resources such as GPUs that are assigned to a task. */
  type TaskResources = Map[String, ResourceInformation]

  /** Versions for which this jar is built. */
  val SupportedVersions: Seq[String] = Seq("3.5")

  def cpus(count: Int): Cpus = count

  def wholeCpus(cpus: Cpus): Int = cpus
}
