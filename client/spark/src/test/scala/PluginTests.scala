package org.apache.spark.scheduler.headroom

import org.apache.spark.{ExceptionFailure, SparkConf, SparkException}
import org.apache.spark.executor.ExecutorMetrics
import org.apache.spark.scheduler.{SparkListenerTaskEnd, SparkListenerTaskStart, TaskInfo, TaskLocality}

import com.fasterxml.jackson.databind.ObjectMapper

/** Tests of the parts without a cluster. A failed check ends the program with code 1. */
object PluginTests {

  private var failures = 0

  private def check(name: String)(condition: => Boolean): Unit = {
    val passed =
      try condition
      catch {
        case error: Throwable =>
          println(s"  $error")
          false
      }
    if (!passed) {
      failures += 1
      println(s"FAILED $name")
    }
  }

  private val base = ExecutorSize(512, 0, 384, 0, 4)

  private def ladder(mode: MemoryFailureMode, largest: Long = 100000): MemoryLadder =
    new MemoryLadder(mode, base, 1, largest)

  private def next(step: LadderStep): Rung = step match {
    case LadderStep.Next(rung) => rung
    case LadderStep.Exhausted(sentence) => throw new AssertionError(sentence)
  }

  private def sentence(step: LadderStep): String = step match {
    case LadderStep.Next(rung) => throw new AssertionError(rung.toString)
    case LadderStep.Exhausted(sentence) => sentence
  }

  def main(arguments: Array[String]): Unit = {
    rungs()
    modes()
    sizes()
    masterUrls()
    managers()
    replacedLeaders()
    silentLeaders()
    versions()
    keptRungs()
    earlierRuns()
    reports()
    crashesOfPythonWorkers()
    executors()
    growth()
    if (failures > 0) sys.exit(1)
    println("all checks of the plugin passed")
  }

  private def rungs(): Unit = {
    val steps = ladder(MemoryFailureMode.Headroom)
    val wide = next(steps.after(steps.first, MemoryDimension.Heap, alone = false))
    check("rung 2 doubles the processors")(wide == Rung(2, 2, base))
    val double = next(steps.after(wide, MemoryDimension.Heap, alone = false))
    check("rung 3 doubles the heap only")(double.executor == ExecutorSize(1024, 0, 384, 0, 1))
    val triple = next(steps.after(double, MemoryDimension.Heap, alone = true))
    check("rung 4 is three times the heap")(triple.executor.heap == 1536)
    val other = next(steps.after(triple, MemoryDimension.Overhead, alone = true))
    check("another dimension keeps the first")(other.executor == ExecutorSize(1536, 0, 768, 0, 1))
    val top = next(steps.after(triple, MemoryDimension.Heap, alone = true))
    check("the last rung is four times the heap")(top.executor.heap == 2048)
    check("above it nothing is left")(
      sentence(steps.after(top, MemoryDimension.Heap, alone = true)).contains("spark.executor.memory"))
    check("a task that was alone gets no more processors")(
      next(steps.after(steps.first, MemoryDimension.Overhead, alone = true)).executor.overhead == 768)
    val capped = ladder(MemoryFailureMode.Headroom, largest = 1100)
    val last = next(capped.after(capped.first, MemoryDimension.Heap, alone = true))
    check("the largest container bounds a rung")(last.executor.heap == 716 && last.executor.memory == 1100)
    check("and is named")(
      sentence(capped.after(last, MemoryDimension.Heap, alone = true)).contains("1100 MiB"))
    val python = ExecutorSize(512, 0, 300, 100, 1)
    check("overhead and Python memory keep their ratio")(
      python.withMemory(MemoryDimension.Overhead, 800) == ExecutorSize(512, 0, 600, 200, 1))
  }

  private def modes(): Unit = {
    val pinterest = ladder(MemoryFailureMode.Pinterest)
    check("pinterest grows every dimension")(
      next(pinterest.after(pinterest.first, MemoryDimension.Heap, alone = true)).executor ==
        ExecutorSize(1024, 0, 768, 0, 1))
    val uber = ladder(MemoryFailureMode.Uber)
    val whole = next(uber.after(uber.first, MemoryDimension.Heap, alone = false))
    check("uber gives a whole executor")(whole == Rung(2, 4, base))
    check("and no more")(
      sentence(uber.after(whole, MemoryDimension.Heap, alone = true)).contains("alone"))
  }

  private def sizes(): Unit = {
    val conf = new SparkConf(false)
      .set("spark.executor.memory", "4g")
      .set("spark.executor.cores", "2")
    check("the overhead is a tenth, at least 384 MiB")(
      Settings.executorSize(conf) == ExecutorSize(4096, 0, 409, 0, 2))
    conf.set("spark.executor.memory", "1g").set("spark.memory.offHeap.enabled", "true")
      .set("spark.memory.offHeap.size", "100m").set("spark.executor.pyspark.memory", "200m")
    check("off-heap and Python memory count")(
      Settings.executorSize(conf) == ExecutorSize(1024, 100, 384, 200, 2))
    check("a wrong size names its key")(
      message(Settings.executorSize(new SparkConf(false).set("spark.executor.memory", "big")))
        .contains("spark.executor.memory"))
  }

  private def message(action: => Any): String =
    try {
      action
      ""
    } catch { case error: SparkException => error.getMessage }

  private def uris(texts: String*): Seq[java.net.URI] = texts.map(java.net.URI.create)

  private def managers(): Unit = {
    import SendOutcome._
    def standby(leader: String) = Standby(Some(leader))
    def send(addresses: ManagerAddresses, repeatable: Boolean, outcomes: SendOutcome*) = {
      val route = addresses.begin(repeatable)
      val goesOn = outcomes.map(outcome => addresses.failed(route, outcome)).last
      if (goesOn) addresses.answered(route)
      ((route.left :+ route.target).map(_.getHost).mkString, goesOn)
    }
    val three = uris("http://a:1", "http://b:1", "http://c:1")
    val plain = new ManagerAddresses(three, hasToken = false)
    check("a call passes dead addresses and standbys")(
      send(plain, false, NotConnected, Standby(None)) == (("abc", true)))
    check("later calls begin at the leader")(plain.current == three(2))
    check("a circle of standbys ends")(
      send(plain, false, standby("http://a:1/"), standby("http://c:1"), standby("http://a:1")) ==
        (("cab", false)))
    val fresh = new ManagerAddresses(three, hasToken = false)
    check("a change is not sent again")(send(fresh, false, Interrupted) == (("a", false)))
    check("a read is sent again")(send(fresh, true, Interrupted) == (("bc", true)))
    check("an unlisted leader is followed")(
      send(new ManagerAddresses(three, false), false, standby("http://x:1")) == (("ax", true)))
    check("a token stays on this host without encryption")(
      send(new ManagerAddresses(uris("http://127.0.0.1:1"), true), false, standby("http://x:1")) ==
        (("127.0.0.1", false)))
    check("a leader with another scheme is not followed")(
      send(new ManagerAddresses(uris("https://a:1"), false), false, standby("http://x:1")) ==
        (("a", false)))
  }

  private def replacedLeaders(): Unit = {
    val list = uris("http://a:1", "http://b:1", "http://c:1")
    val addresses = new ManagerAddresses(list, hasToken = false)
    check("the others are asked from the next one on")(
      addresses.others(list(1)) == Seq(list(2), list(0)))
    def leader(named: String, before: Option[String] = None) =
      addresses.replacement(list.head, named, before).map(_.toString)
    check("another listed address leads instead")(
      leader("http://b:1/").contains("http://b:1"))
    check("the target itself does not")(leader("http://a:1").isEmpty)
    check("an address that is not listed may be another name of the target")(
      leader("http://x:1").isEmpty && leader("http://x:1", Some("http://x:1")).isEmpty)
    check("it is another manager after a change")(
      leader("http://x:1", Some("http://a:1")).contains("http://x:1"))
    val read = addresses.begin(repeatable = true)
    check("a read goes to the leader")(
      addresses.failed(read, SendOutcome.Replaced(list(2))) && read.target == list(2))
    check("later calls begin there")(addresses.current == list(2))
    val change = addresses.begin(repeatable = false)
    check("a change that may have been executed is not sent again")(
      !addresses.failed(change, SendOutcome.Replaced(list.head)) && change.left.isEmpty)
  }

  private def silentLeaders(): Unit = {
    def withManagers(test: (FakeManager, FakeManager, ResourceManagerClient) => Unit): Unit = {
      val (silent, other) = (new FakeManager, new FakeManager)
      val client = ResourceManagerClient.connect(
        Seq(silent.address, other.address), new SparkConf(false))
      try test(silent, other, client)
      finally Seq(silent, other).foreach(_.close())
    }
    withManagers { (silent, other, client) =>
      other.leader = other.address
      other.answers = true
      check("a read leaves a silent manager when another one leads")(
        client.get("/v1/a").get("of").asText == other.address.toString)
      check("it was sent to each once")(
        silent.received == Seq("GET /v1/a") && other.received == Seq("GET /v1/a"))
    }
    withManagers { (silent, other, client) =>
      other.leader = other.address
      other.answers = true
      val sentence =
        try client.post("/v1/a", client.json.createObjectNode()).toString
        catch { case error: LeaderReplaced => error.getMessage }
      check(s"a change at a silent manager fails: $sentence")(
        sentence.contains(s"${other.address} leads now"))
      check("it was sent once")(
        silent.received == Seq("POST /v1/a") && other.received.isEmpty)
      client.post("/v1/b", client.json.createObjectNode())
      check("the next one goes to the leader")(other.received == Seq("POST /v1/b"))
    }
    withManagers { (silent, other, client) =>
      // The other manager knows of no change until it is asked to wait for one.
      other.leader = silent.address
      other.leaderAfterWait = other.address
      other.answers = true
      check("a stream leaves a silent manager when the leader changes")(
        client.lines("/v1/a").readLine().contains(other.address.toString))
      check("the question names the former leader")(
        other.otherThan == Seq("", silent.address.toString))
    }
    withManagers { (silent, _, client) =>
      val stream = client.lines("/v1/stream")
      val first = stream.readLine()
      val rest = new java.util.concurrent.FutureTask[Option[String]](() =>
        try Option(stream.readLine())
        catch { case _: java.io.IOException => None })
      val reader = new Thread(rest)
      reader.setDaemon(true)
      reader.start()
      while (reader.isAlive && reader.getState != Thread.State.WAITING) Thread.onSpinWait()
      val closing = new Thread(() => stream.close())
      closing.setDaemon(true)
      closing.start()
      closing.join(10000)
      check("a stream of a silent manager is closed while a thread waits for its next line")(
        first == silent.address.toString && !closing.isAlive &&
          rest.get(10, java.util.concurrent.TimeUnit.SECONDS).isEmpty)
    }
    withManagers { (slow, other, client) =>
      // The second question shows that the call stayed after the first one.
      other.leader = slow.address
      other.onQuestion = number => if (number == 2) slow.answers = true
      check("a slow leader keeps its call")(
        client.get("/v1/a").get("of").asText == slow.address.toString && other.received.isEmpty)
    }
  }

  private def masterUrls(): Unit = {
    check("a plain address")(MasterUrl.parse("spark-headroom://rm:7070") == uris("http://rm:7070"))
    check("an address with TLS")(
      MasterUrl.parse("spark-headroom+https://10.0.0.1:7070/") == uris("https://10.0.0.1:7070"))
    check("an IPv6 address")(
      MasterUrl.parse("spark-headroom://[::1]:7070").map(_.getPort) == Seq(7070))
    check("several addresses")(
      MasterUrl.parse("spark-headroom+https://rm1:7070,rm2:7071") ==
        uris("https://rm1:7070", "https://rm2:7071"))
    check("an address twice")(
      message(MasterUrl.parse("spark-headroom://rm:1,rm:1")).contains("rm:1 twice"))
    Seq("spark-headroom://rm", "spark-headroom://a:1,", "spark-headroom://a:1,b", "spark-headroom:7070", "spark-headroom://rm:0", "spark-headroom://rm:99999")
      .foreach(url => check(s"$url is refused")(message(MasterUrl.parse(url)).contains("HOST:PORT")))
  }

  private def versions(): Unit = {
    check("a supported version")(SupportedVersion.explain("4.0,4.1", "2.13", "4.1.4", "2.13.17") == null)
    val wrong = SupportedVersion.explain("4.0,4.1", "2.13", "3.5.9", "2.12.18")
    check("an unsupported version names both")(wrong.contains("4.1") && wrong.contains("3.5.9"))
    check("10 is not 1")(SupportedVersion.explain("4.1", "2.13", "4.10.0", "2.13.1") != null)
  }

  private def keptRungs(): Unit = {
    val kept = new TaskRungs(ladder(MemoryFailureMode.Headroom))
    val task = StagePartition(7, 3)
    kept.raise(task, MemoryDimension.Heap, alone = true)
    check("a rung belongs to stage and partition")(kept.of(task).number == 2 && kept.isSeparate(task))
    check("a rung is kept by the name of the task")(
      kept.learn(1, task, "count at X").isEmpty && {
        kept.started(2, task)
        kept.learn(2, task, "count at X").map(_._1).contains("count at X/3")
      })
    speculativeCopies()
    kept.forget(7)
    check("a stage that ended is forgotten")(!kept.isRaised(task) && !kept.hasSeparate)
    val recalled = kept.recall(9, "count at X", 0 until 40)
    check("a later run of the stage starts there")(
      recalled.map(_._1) == Seq(StagePartition(9, 3)) && kept.of(StagePartition(9, 3)).number == 2)
    check("another stage does not")(kept.recall(10, "count at Y", 0 until 40).isEmpty)
    kept.hold(StagePartition(9, 5), until = 1000)
    check("a held task waits")(kept.separatePartitions(9, now = 999).toSeq == Seq(3))
    check("and is placed apart afterwards")(kept.separatePartitions(9, now = 1000).toSet == Set(3, 5))
  }

  private def speculativeCopies(): Unit = {
    val rungs = new TaskRungs(ladder(MemoryFailureMode.Headroom))
    val task = StagePartition(1, 0)
    check("on the first rung no attempt is behind")(!rungs.isBehind(10, task))
    rungs.raise(task, MemoryDimension.Heap, alone = true)
    check("a copy that began before its task was raised is behind")(rungs.isBehind(11, task))
    check("and its success teaches nothing")(rungs.learn(11, task, "count at X").isEmpty)
    rungs.started(12, task)
    check("an attempt on the new rung is not")(!rungs.isBehind(12, task))
    rungs.raise(task, MemoryDimension.Heap, alone = true)
    check("until the task rises again")(rungs.isBehind(12, task))
    rungs.forget(1)
    check("an ended stage has no attempts")(!rungs.isBehind(12, task))
  }

  private def earlierRuns(): Unit = {
    check("names of stages have no directories")(
      StageKind.of("collect at /srv/etl/skew.py:9", isMap = true, 1, 40) ==
        "collect at skew.py:9, map stage after 1, 40 tasks")
    check("names are bounded and plain")(
      StageKind.of("ä" * 1000, isMap = false, 0, 1).getBytes("UTF-8").length < 300)
    val base = ExecutorSize(512, 0, 384, 0, 2)
    def rungOf(task: EnlargedTask, base: ExecutorSize = base): Option[Rung] =
      LearnedSizes.rungOf(task, base, 1, MemoryFailureMode.Headroom, 4096)
    val large = Rung(3, 1, ExecutorSize(1024, 0, 384, 0, 1))
    val kept = LearnedSizes.enlarged("a/5", large, base)
    check("the next run starts on the rung of the last one")(rungOf(kept).contains(large))
    val wide = LearnedSizes.enlarged("a/6", Rung(2, 2, base), base)
    check("a task that needed a whole executor gets one")(rungOf(wide).contains(Rung(2, 2, base)))
    check("with larger executors the configured share is enough")(
      rungOf(wide, ExecutorSize(1024, 0, 768, 0, 2)).isEmpty)
    check("or a whole one")(
      rungOf(kept, ExecutorSize(1024, 0, 768, 0, 2)).contains(
        Rung(2, 2, ExecutorSize(1024, 0, 768, 0, 2))))
    check("a size that no container can have is ignored")(
      LearnedSizes.rungOf(kept, base, 1, MemoryFailureMode.Headroom, 1000).isEmpty)
    check("the mode off ignores it as well")(
      LearnedSizes.rungOf(kept, base, 1, MemoryFailureMode.Off, 4096).isEmpty)
    val overhead = LearnedSizes.enlarged("a/7", Rung(4, 1, ExecutorSize(512, 0, 1152, 0, 1)), base)
    check("only the dimension that ran out is larger")(
      rungOf(overhead).exists(_.executor == ExecutorSize(512, 0, 1152, 0, 1)))
    val json = new ObjectMapper()
    val reply = json.createObjectNode()
    reply.putObject("known").putArray("enlarged").add(LearnedSizes.toJson(json, kept))
      .add(json.readTree("{\"name\":\"x\",\"rung\":2,\"cpus\":1,\"memory\":{\"device\":1}}"))
    check("sizes are unchanged after the resource manager kept them")(
      LearnedSizes.fromReply(reply) == Seq(kept))
    check("a first run has none")(LearnedSizes.fromReply(json.createObjectNode()).isEmpty)
    val rungs = new TaskRungs(new MemoryLadder(MemoryFailureMode.Headroom, base, 1, 4096))
    rungs.restore(Seq("a/5" -> large))
    check("only the named task starts larger")(
      rungs.recall(3, "a", 0 until 40) == Seq(StagePartition(3, 5) -> large))
  }

  private def reports(): Unit = {
    val json = new ObjectMapper()
    def end(reason: String, evidence: String) = ApplicationSession.containerEnd(json.readTree(
      s"""{"container":"a.1.e1.c2","node":"n1","reason":$reason,"evidence":$evidence,
         |"diagnosis":[{"name":"x","cause":"why","fix":"do"}],"started":1,"ended":2,"log_tail":"a\\nlast\\n"}"""
        .stripMargin))
    def loss(end: ContainerEnd) = MemoryFailure.lossOf("1", base, end, retried = true)
    val overhead = loss(end("""{"kind":"overhead_oom"}""", """{"exit_code":null,"own":{"limit":939524096,"peak":939524096}}"""))
    check("an overhead kill")(
      overhead.memory.contains(MemoryDimension.Overhead) && !overhead.exitCausedByApp &&
        overhead.message.contains("896 MiB") && overhead.message.contains("do"))
    val unretried = MemoryFailure.lossOf(
      "1", base, end("""{"kind":"overhead_oom"}""", "{}"), retried = false)
    check("without rungs a memory failure counts")(unretried.exitCausedByApp)
    val heap = loss(end("""{"kind":"exit","code":52}""", """{"exit_code":52}"""))
    check("exit code 52 is a full heap")(heap.memory.contains(MemoryDimension.Heap))
    val own = loss(end("""{"kind":"exit","code":1}""", """{"exit_code":1}"""))
    check("another exit code counts")(
      own.memory.isEmpty && own.exitCausedByApp && own.message.contains("last"))
    Seq("preempted", "node_lost", "node_oom", "killed_externally", "stopped").foreach { reason =>
      val lost = loss(end(s"""{"kind":"$reason"}""", "{}"))
      check(s"$reason is not charged")(lost.memory.isEmpty && !lost.exitCausedByApp)
    }
    check("names of applications")(
      Seq("My App: 1", "  ", "ä", "x" * 80).map(ApplicationSession.applicationName) ==
        Seq("My-App--1", "spark", "spark", "x" * 48))
  }

  /** The report of the node comes before or after Spark's event of the crash; the row is the same. */
  private def crashesOfPythonWorkers(): Unit = {
    val json = new ObjectMapper()
    val conf = new SparkConf(false)
      .set("spark.executor.memory", "512m")
      .set("spark.headroom.sparkHome", "/opt/spark")
    val end = ApplicationSession.containerEnd(json.readTree(
      """{"container":"a.1.e1.c2","node":"n1","reason":{"kind":"overhead_oom"},
        |"evidence":{"own":{"limit":939524096,"peak":939524096}},"started":1,"ended":2}"""
        .stripMargin))
    val loss = MemoryFailure.lossOf("1", base, end, retried = true)
    val crash = ExceptionFailure(
      classOf[SparkException].getName,
      "Python worker exited unexpectedly (crashed)",
      Array.empty[StackTraceElement],
      "at PythonRunner",
      None)
    def taskInfo(id: Long) =
      new TaskInfo(id, 3, 0, 3, 1000L, "1", "host", TaskLocality.ANY, false)
    def rowAfter(events: Seq[JobView => Unit]) = {
      val view = new JobView(Settings.of(conf), json)
      view.onTaskStart(SparkListenerTaskStart(0, 0, taskInfo(8)))
      events.foreach(_(view))
      view.patch(full = true).get
    }
    val crashes: JobView => Unit = view => {
      val info = taskInfo(8)
      info.markFinished(org.apache.spark.TaskState.FAILED, 2000L)
      view.onTaskEnd(
        SparkListenerTaskEnd(0, 0, "ResultTask", crash, info, new ExecutorMetrics, null))
    }
    val reported: JobView => Unit = view => {
      view.lost("1", end, loss)
      view.raised(
        StagePartition(0, 3), 8L, Rung(2, 1, base), MemoryDimension.Overhead, "runs alone")
    }
    val orders = Map("before" -> Seq(reported, crashes), "after" -> Seq(crashes, reported))
    orders.foreach { case (order, events) =>
      val body = rowAfter(events)
      val attempt = body.get("tasks").get(0).get("attempts").get(0)
      check(s"a crash is an overhead failure if the report comes $order it: $body")(
        attempt.get("dimension").asText == "overhead" &&
          attempt.get("reason").get("kind").asText == "overhead_oom" &&
          attempt.get("peak").asLong == 939524096L &&
          attempt.get("decision").asText == "runs alone" &&
          body.get("totals").get("memory_kills").asInt == 1)
    }
    val alone = rowAfter(Seq(crashes)).get("tasks").get(0).get("attempts").get(0)
    check(s"a crash without a report is none: $alone")(
      Option(alone.get("dimension")).forall(_.isNull) &&
        alone.get("reason").get("code").asInt == 1)
  }

  private def executors(): Unit = {
    val conf = new SparkConf(false)
      .set("spark.executor.memory", "512m")
      .set("spark.executor.cores", "4")
      .set("spark.headroom.sparkHome", "/opt/spark")
    val settings = Settings.of(conf)
    val table = new ExecutorTable(settings)
    check("executors are requested")(table.setTarget(3) == ((Seq("1", "2", "3"), Nil)))
    table.granted("1", "c1", "n1")
    check("requests without a grant are withdrawn first")(table.setTarget(1) == ((Nil, Seq("2", "3"))))
    check("a granted one is not")(table.setTarget(0) == ((Nil, Nil)))
    val large = ExecutorSize(1024, 0, 384, 0, 1)
    table.setTarget(1)
    check("one larger executor for each task")(
      table.setDemand(LargeDemand(Map(large -> 1))) == Seq(("4", large)))
    check("not twice")(table.setDemand(LargeDemand(Map(large -> 1))).isEmpty)
    check("at most as many as configured")(
      table.setDemand(LargeDemand(Map(large -> 50))).size == settings.mostLargeExecutors - 1)
    table.registered("1", "host")
    check("the host of a lost node")(table.hostOnlyOf("1").contains("host"))
    table.granted("4", "c4", "n2")
    table.registered("4", "host")
    check("but not of two nodes on one host")(table.hostOnlyOf("1").isEmpty)
    table.gone("4")
    check("an executor that is gone does not count")(table.hostOnlyOf("1").contains("host"))
    val later = System.currentTimeMillis() + 60000
    val room = table.makeRoom(_ == "1", later)
    check("an idle executor makes room for a larger one that waits")(room.release == Seq("1"))
    check("a mistake in the settings names the fix")(
      message(Settings.of(conf.clone().set("spark.headroom.memory.mode", "more"))).contains("pinterest"))
  }

  private def growth(): Unit = {
    val mib = 1L << 20
    check("room is left alone")(GrowthInPlace.nextLimit(base, 700 * mib, 896 * mib).isEmpty)
    check("near the limit the overhead grows by half")(
      GrowthInPlace.nextLimit(base, 880 * mib, 896 * mib).contains((896 + 192) * mib))
    check("up to four times")(
      GrowthInPlace.nextLimit(base, 2040 * mib, 2048 * mib).isEmpty)
  }
}
