package org.apache.spark.scheduler.headroom

import java.net.{InetAddress, URI}

/** The outcome of sending a call to one address. */
private[headroom] sealed trait SendOutcome {

  /** Whether a manager may have executed the call. */
  def mayBeExecuted: Boolean = this match {
    case SendOutcome.Interrupted | SendOutcome.Replaced(_) => true
    case SendOutcome.NotConnected | SendOutcome.Standby(_) => false
  }
}

private[headroom] object SendOutcome {

  /** Nothing was sent. */
  case object NotConnected extends SendOutcome

  /** The request was sent, and no whole answer came. */
  case object Interrupted extends SendOutcome

  /** The request was sent, at least in part, and another manager leads now. */
  final case class Replaced(leader: URI) extends SendOutcome

  /** A standby answered, which perhaps named the leader. */
  final case class Standby(leader: Option[String]) extends SendOutcome
}

/** The way of one call through the addresses. `repeatable`: the call changes nothing. */
private[headroom] final class CallRoute(var target: URI, val repeatable: Boolean) {
  var left: Seq[URI] = Nil
}

/**
 * The addresses of the resource managers of one cluster, and the current one, at which calls begin.
 * A call is sent to no address twice, and to at most one address more than the list has. Safe for
 * use by several threads. `hasToken` keeps calls from following a standby to another host without
 * encryption.
 */
private[headroom] final class ManagerAddresses(list: Seq[URI], hasToken: Boolean) {

  private var currentAddress = list.head

  def current: URI = synchronized(currentAddress)

  def size: Int = list.size

  override def toString: String = list.mkString(",")

  def begin(repeatable: Boolean): CallRoute = new CallRoute(current, repeatable)

  /** The target answered, and is no standby. */
  def answered(route: CallRoute): Unit = synchronized {
    // A late answer at the former address does not move other calls back.
    if (route.left.nonEmpty) currentAddress = route.target
  }

  /** Takes the outcome at the target. Returns whether the route has another target. */
  def failed(route: CallRoute, outcome: SendOutcome): Boolean = synchronized {
    val wasCurrent = currentAddress == route.target
    if (wasCurrent) currentAddress = after(route.target).head
    outcome match {
      case SendOutcome.NotConnected => advance(route, None)
      case SendOutcome.Interrupted => route.repeatable && advance(route, None)
      case SendOutcome.Replaced(leader) =>
        if (wasCurrent) currentAddress = leader
        route.repeatable && advance(route, Some(leader))
      case SendOutcome.Standby(named) =>
        val leader = named.flatMap(find).filter(_ != route.target)
        leader.foreach(address => currentAddress = address)
        advance(route, leader)
    }
  }

  /** The addresses of the list other than `target`, the one after it first. */
  def others(target: URI): Seq[URI] = after(target).filter(_ != target)

  /**
   * The leader that replaced the one at `target`, if `named` says so: a leader by the word of another
   * manager. `before` is what it said earlier. A listed address is another manager; one that is not
   * listed may be another name of `target`, until it changes.
   */
  def replacement(target: URI, named: String, before: Option[String]): Option[URI] = {
    val hasChanged = before.exists(_ != named)
    find(named).filter(leader => leader != target && (hasChanged || list.contains(leader)))
  }

  private def after(address: URI): Seq[URI] = {
    val (before, rest) = list.splitAt(list.indexOf(address) + 1)
    rest ++ before
  }

  private def advance(route: CallRoute, leader: Option[URI]): Boolean = {
    val tried = route.left :+ route.target
    val next =
      if (tried.size > list.size) None
      else (leader.toSeq ++ Seq(currentAddress) ++ after(route.target)).find(!tried.contains(_))
    next.foreach { address =>
      route.left = tried
      route.target = address
    }
    next.isDefined
  }

  private def find(text: String): Option[URI] = {
    val parsed =
      try Option(new URI(text.trim.stripSuffix("/")))
      catch { case _: java.net.URISyntaxException => None }
    parsed.filter { address =>
      val isOrigin = address.getHost != null && address.getUserInfo == null &&
        Option(address.getPath).forall(_.isEmpty) && address.getQuery == null
      list.contains(address) ||
      (isOrigin && address.getScheme == list.head.getScheme &&
        (address.getScheme == "https" || !hasToken || isLoopback(address.getHost)))
    }
  }

  private def isLoopback(host: String): Boolean =
    host == "localhost" || (host.matches("[0-9.]+|\\[[0-9a-fA-F:]+\\]") &&
      InetAddress.getByName(host).isLoopbackAddress)
}
