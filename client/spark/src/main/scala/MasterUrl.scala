package org.apache.spark.scheduler.headroom

import java.net.URI

import org.apache.spark.SparkException

/**
 * The addresses of the resource managers: `spark-headroom://HOST:PORT`, with `+https` for TLS. Of
 * several, all are separated by commas: `spark-headroom://HOST:PORT,HOST:PORT`.
 */
private[headroom] object MasterUrl {

  /**
   * Start of every master URL of the plugin. Spark accepts only masters that begin with `spark`. A
   * constant of the compiler: its users do not load this object.
   */
  final val Prefix = "spark-headroom"

  private val Form = "spark-headroom(\\+https)?://(.+?)/?".r
  private val Place = "([^:/@,]+|\\[[0-9a-fA-F:]+\\]):(\\d{1,5})".r

  /** The base URLs for HTTP calls, at least one. */
  def parse(url: String): Seq[URI] = url match {
    case Form(tls, places) =>
      val scheme = if (tls == null) "http" else "https"
      val found = places.split(",", -1).toSeq.map(_.trim).map {
        case Place(host, port) if port.toInt >= 1 && port.toInt <= 65535 =>
          URI.create(s"$scheme://$host:$port")
        case _ => throw wrong(url)
      }
      found.diff(found.distinct).headOption.foreach { twice =>
        throw new SparkException(
          s"the master URL $url has ${twice.getAuthority} twice; name each resource manager once")
      }
      found
    case _ => throw wrong(url)
  }

  private def wrong(url: String): SparkException =
    new SparkException(
      s"the master URL $url is not of the form spark-headroom://HOST:PORT " +
        "(or spark-headroom+https://HOST:PORT with TLS; of several resource managers " +
        "HOST:PORT,HOST:PORT); `rmctl status` prints the address of the resource manager")
}
