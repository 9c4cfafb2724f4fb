package org.apache.spark.scheduler.headroom

import org.apache.spark.{SparkContext, SparkException}
import org.apache.spark.scheduler.{ExternalClusterManager, SchedulerBackend, TaskScheduler}

/**
 * Entry point of the plugin: Spark finds it by the master URL `spark-headroom://HOST:PORT`.
 *
 * The class compares the version of Spark with the version that the jar was built for before it
 * loads any class that depends on that version.
 */
class HeadroomClusterManager extends ExternalClusterManager {

  private lazy val components: ExternalClusterManager = {
    SupportedVersion.check()
    Class
      .forName("org.apache.spark.scheduler.headroom.HeadroomComponents")
      .getDeclaredConstructor()
      .newInstance()
      .asInstanceOf[ExternalClusterManager]
  }

  override def canCreate(masterURL: String): Boolean = masterURL.startsWith(MasterUrl.Prefix)

  override def createTaskScheduler(sc: SparkContext, masterURL: String): TaskScheduler =
    components.createTaskScheduler(sc, masterURL)

  override def createSchedulerBackend(
      sc: SparkContext,
      masterURL: String,
      scheduler: TaskScheduler): SchedulerBackend =
    components.createSchedulerBackend(sc, masterURL, scheduler)

  override def initialize(scheduler: TaskScheduler, backend: SchedulerBackend): Unit =
    components.initialize(scheduler, backend)
}

/** Creates the scheduler and the backend. Loaded after the check of the version. */
private[headroom] class HeadroomComponents extends ExternalClusterManager {

  override def canCreate(masterURL: String): Boolean = masterURL.startsWith(MasterUrl.Prefix)

  override def createTaskScheduler(sc: SparkContext, masterURL: String): TaskScheduler = {
    MasterUrl.parse(masterURL)
    new HeadroomTaskScheduler(sc, Settings.of(sc))
  }

  override def createSchedulerBackend(
      sc: SparkContext,
      masterURL: String,
      scheduler: TaskScheduler): SchedulerBackend = scheduler match {
    case scheduler: HeadroomTaskScheduler =>
      val addresses = MasterUrl.parse(masterURL)
      new HeadroomSchedulerBackend(scheduler, sc, ResourceManagerClient.connect(addresses, sc.conf))
    case other =>
      throw new SparkException(s"unexpected task scheduler ${other.getClass.getName}")
  }

  override def initialize(scheduler: TaskScheduler, backend: SchedulerBackend): Unit =
    scheduler match {
      case scheduler: HeadroomTaskScheduler => scheduler.initialize(backend)
      case other => throw new SparkException(s"unexpected task scheduler ${other.getClass.getName}")
    }
}
