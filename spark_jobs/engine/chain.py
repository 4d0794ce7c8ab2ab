"""A chain of supersteps as one Spark job: one task a slot and stage, every slot pinned to its node by us.

Built on public RDD operations.  Stage 0 is an RDD whose partitions carry preferred locations (`SparkContext.makeRDD`);
every later stage reads the previous one's shuffle.  A shuffle's reader has no home of its own, so it is united with the
anchor, an RDD with the same partitioner whose own shuffle keeps each slot's row on its node
(`spark.shuffle.reduceLocality.enabled`); the anchor is united twice, so that its vote outweighs those of the messages.
Lineage does not grow: a chain begins with commands and ends with reports, and state lives in the hosts.

Every call into the JVM costs about a millisecond, and they add up between two jobs.  So what stays the same for a list of
nodes is built once, and the orders of all slots cross to the JVM in one call.  There they become the rows of an RDD with one
partition a slot, so that each task gets its own slot's and no other.

Failures are fast: one task attempt, one stage attempt; a task on a wrong node raises (`reprise.spark_jobs.node.shim`).
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Sequence
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.core.rdd import RDD
from pyspark.serializers import BatchedSerializer, CPickleSerializer, NoOpSerializer, PairDeserializer

from reprise.spark_jobs.errors import HostBusyError, JobError, VersionError
from reprise.spark_jobs.exchange.exchange import cancel
from reprise.spark_jobs.exchange.settings import SETTINGS as EXCHANGE
from reprise.spark_jobs.node.command import Order, Report
from reprise.spark_jobs.node.shim import Anchor, Stage, Warm, slot_of
from reprise.spark_jobs.version import VERSION

SETTINGS = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.locality.wait": "30s",
    "spark.shuffle.reduceLocality.enabled": "true",
    **EXCHANGE,
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "reprise.spark_jobs.node.daemon",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.excludeOnFailure.enabled": "false",
    "spark.standalone.executorRemoveDelayOnDisconnection": "0s",  # no Worker knows why one has ended
    "spark.speculation": "false",
    "spark.shuffle.io.maxRetries": "0",
    "spark.rpc.io.connectionTimeout": "30s",
    "spark.shuffle.io.connectionTimeout": "20s",  # else a job waits for a fetch by a link that was cut without a word
}
GROUP = "reprise"
_UNREAD = re.compile(
    r"^\s*(?:(?:ModuleNotFoundError|ImportError|AttributeError): .*"
    r"|.*: No module named |.*\(ModuleNotFoundError: No module named ')\b(?:reprise|spark_jobs)\b.*$",
    re.MULTILINE,
)
"""What a task or daemon of ours raises where it cannot be read, as names of our code are missing: that of another build."""
_FRAME = struct.Struct(">i")
"""Length of each byte array, as Spark reads them."""
CANCEL_S = 10.0
"""A job that is cancelled is waited for no longer than that."""


class ChainError(JobError):
    """The job did not finish: a node was lost, or the job was cancelled because one was."""


def _slot(slot: int) -> int:
    """The partition function: one object for the whole application, as partitioners compare it by identity."""
    return slot


def _placed(context: SparkContext, hosts: Sequence[str]) -> RDD[Any]:
    """An RDD with one partition a slot, preferably at the slot's host, holding (slot, ("at", host))."""
    jvm: Any = context._jvm
    convert = jvm.scala.jdk.javaapi.CollectionConverters
    serializer = CPickleSerializer()
    rows = jvm.java.util.ArrayList()
    for slot, host in enumerate(hosts):
        place = jvm.java.util.ArrayList()
        place.add(host)
        row = serializer.dumps([(slot, ("at", host))])
        rows.add(jvm.scala.Tuple2(row, convert.asScala(place).toSeq()))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    java: Any = context._jsc
    made = java.sc().makeRDD(convert.asScala(rows).toSeq(), tag)
    return RDD(made.toJavaRDD(), context, BatchedSerializer(serializer, 1))


def warm(context: SparkContext, host: str) -> tuple[float, float]:
    """Start the Python worker and the partition host of a node, so that no superstep waits for them.  Answers when its task
    began, and when that reached the host: unix seconds by the node's clock.

    Raises ChainError when that fails, VersionError when it never can.

    Runs as a job of its own, beside the chains of the nodes that are at work.
    """
    try:
        [(began, met)] = _placed(context, [host]).mapPartitionsWithIndex(Warm()).collect()
    except Exception as error:
        if unread := _UNREAD.search(str(error)):
            raise VersionError(
                f"node at {host} is not ready: its executor does not have the driver's code, Reprise {VERSION} "
                f"({unread[0].strip()}): driver and executors must run the same image"
            ) from error
        line = _first_line(error)
        kind = VersionError if VersionError.__name__ in line else ChainError
        raise kind(f"node at {host} is not ready: {line}") from error
    return began, met


class Chain:
    """Runs jobs over a fixed list of slots; a new list of nodes makes a new Chain."""

    link, link_key = 0, ""
    stands, ended = True, ""

    def __init__(self, context: SparkContext, hosts: Sequence[str], why_chained: str = "") -> None:
        self._context = context
        self.hosts, self.why_chained = tuple(hosts), why_chained
        self._begin = _placed(context, self.hosts)
        self._anchor = self._begin.mapPartitionsWithIndex(Anchor()).partitionBy(len(hosts), _slot)
        gateway: Any = context._gateway
        self._new_array = gateway.new_array
        self._rdd_class = gateway.jvm.org.apache.spark.api.java.JavaRDD
        self._python_rdd = gateway.jvm.org.apache.spark.api.python.PythonRDD
        self._byte_stream = gateway.jvm.java.io.ByteArrayInputStream
        java: Any = context._jsc
        self._spark = java.sc()

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """`stages` supersteps that begin with the orders of each slot; the reports by slot.  Raises ChainError when it
        fails, is cancelled or takes too long, HostBusyError when a host says what holds it up."""
        result: list[Any] = []
        thread = threading.Thread(target=self._collect, args=(job, orders, stages, result), daemon=True)
        thread.start()
        waited = 0.0
        while thread.is_alive():
            thread.join(0.02)
            waited += 0.02
            if thread.is_alive() and (cancelled.is_set() or waited > patience_s):
                cancel(self._context, GROUP, thread, CANCEL_S)
                reason = "a node was lost" if cancelled.is_set() else f"no end within {patience_s:.0f} s"
                raise ChainError(f"cancelled: {reason}")
        if result and isinstance(result[0], BaseException):
            line = _first_line(result[0])
            kind = HostBusyError if HostBusyError.__name__ in line else ChainError
            raise kind(*slot_of(line)) from result[0]
        return [Report.decode(data) for _, data in sorted(result)]

    def close(self) -> None:
        """It holds nothing."""

    def _collect(self, job: Order, orders: Sequence[bytes], stages: int, result: list[Any]) -> None:
        try:
            self._context.setJobGroup(GROUP, "supersteps", interruptOnCancel=True)
            rows = self._ordered(orders)
            for number in range(stages - 1):
                done = rows.mapPartitionsWithIndex(Stage(job, number, False))
                rows = self._beside_anchor(done.partitionBy(len(self.hosts), _slot))
            result.extend(rows.mapPartitionsWithIndex(Stage(job, stages - 1, True)).collect())
        except BaseException as error:
            result[:] = [error]

    def _ordered(self, orders: Sequence[bytes]) -> RDD[Any]:
        """Each slot's own row with its orders, on the slot's host: what is zipped with rows that have a place goes there."""
        stream = self._byte_stream(
            b"".join(part for order in orders for part in (_FRAME.pack(len(order)), order))
        )
        read = self._python_rdd.readRDDFromInputStream(self._spark, stream, len(orders))
        own = self._begin._jrdd_deserializer
        return RDD(self._begin._jrdd.zip(read), self._context, PairDeserializer(own, NoOpSerializer()))

    def _beside_anchor(self, sent: RDD[Any]) -> RDD[Any]:
        """The union of the anchor, twice, and a stage's output; `SparkContext.union` looks up classes by name each time."""
        parts = self._new_array(self._rdd_class, 3)
        parts[0] = parts[1] = self._anchor._jrdd
        parts[2] = sent._jrdd
        java: Any = self._context._jsc
        return RDD(java.union(parts), self._context, self._anchor._jrdd_deserializer)


def _first_line(error: BaseException) -> str:
    """What went wrong, out of Spark's page of traces: the Python error of a task if there is one."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line) and "spark_jobs" in line]
    others = [line for line in lines if "Error" in line or "lost" in line]
    return (raised or others or [type(error).__name__])[0][:300]


def executors(context: SparkContext, driver: str) -> dict[str, str]:
    """Host of each registered executor -> its address and port, which differ for the next executor of the same node;
    `driver` is the driver's own host, which is left out."""
    java: Any = context._jsc
    known = str(java.sc().getExecutorMemoryStatus().keys().mkString(","))
    found = {entry.rsplit(":", 1)[0]: entry for entry in known.split(",") if entry}
    return {host: entry for host, entry in sorted(found.items()) if host not in (driver, "localhost")}


def configuration(master: str, name: str, settings: dict[str, str]) -> SparkConf:
    """Spark settings: the user's, and ours, which a user cannot undo as correctness rests on them."""
    conf = SparkConf().setMaster(master).setAppName(name)
    for key, value in {**settings, **SETTINGS}.items():
        conf.set(key, value)
    return conf
