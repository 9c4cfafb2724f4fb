package org.apache.spark.scheduler.headroom

import java.io.IOException
import java.net.URI
import java.util.concurrent.ConcurrentHashMap

/** Hosts as Spark names them, and the nodes of the cluster on them. */
private[headroom] final class NodeNames(client: ResourceManagerClient) {

  private val nodesByHost = new ConcurrentHashMap[String, Set[String]]()
  private val asked = ConcurrentHashMap.newKeySet[String]()

  /** Nodes on a host; empty while none is known. */
  def at(host: String): Seq[String] = nodesByHost.getOrDefault(host, Set.empty).toSeq

  /** Asks for the host of a node, once. */
  def learn(node: String): Unit = if (asked.add(node)) {
    try {
      ResourceManagerClient
        .field(client.get(s"/v1/nodes/$node"), "url")
        .map(url => URI.create(url.asText).getHost)
        .filter(_ != null)
        .foreach(learnHost(_, Some(node)))
    } catch { case _: IOException => asked.remove(node) }
  }

  def learnHost(host: String, node: Option[String]): Unit = node.foreach { name =>
    nodesByHost.merge(host, Set(name), (known, more) => known ++ more)
  }
}
