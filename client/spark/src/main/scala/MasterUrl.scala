package org.apache.spark.scheduler.headroom

import java.net.URI

import org.apache.spark.SparkException

/** The address of the resource manager: `spark-headroom://HOST:PORT`, with `+https` for TLS. */
private[headroom] object MasterUrl {

  /**
   * Start of every master URL of the plugin. Spark accepts only masters that begin with `spark`. A
   * constant of the compiler: its users do not load this object.
   */
  final val Prefix = "spark-headroom"

  private val Form = "spark-headroom(\\+https)?://([^:/@]+|\\[[0-9a-fA-F:]+\\]):(\\d{1,5})/?".r

  /** The base URL for HTTP calls. */
  def parse(url: String): URI = url match {
    case Form(tls, host, port) if port.toInt >= 1 && port.toInt <= 65535 =>
      URI.create(s"${if (tls == null) "http" else "https"}://$host:$port")
    case _ =>
      throw new SparkException(
        s"the master URL $url is not of the form spark-headroom://HOST:PORT " +
          "(or spark-headroom+https://HOST:PORT with TLS); `rmctl status` prints the address of the " +
          "resource manager")
  }
}
