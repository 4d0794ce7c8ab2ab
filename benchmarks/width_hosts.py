"""Partition hosts of a wide topology in one process, and Spark's place between them and the engine, for `benchmarks.width`.

Invariant: light hosts and full ones are given the same orders and give reports of the same form, so what the driver sends
and receives is counted alike.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.serializers import CloudPickleSerializer

from reprise.spark_jobs.engine.jobs import STAGES
from reprise.spark_jobs.node.command import Order, Report, Usage
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.orders import Orders
from reprise.spark_jobs.node.shim import Stage

LAG = 7
"""Batches that a scattered partition may be behind; the first one of an operator is."""


class Light:
    """A host whose partitions are where the horizon is, but for those whose index is less than `scattered`."""

    def __init__(self, name: str, scattered: int) -> None:
        self.name = name
        self._scattered = scattered
        self._orders = Orders()

    def work(self, order: bytes) -> bytes:
        """One job: orders in, report out."""
        command = self._orders.read(order)
        hosted = dict(command.hosted)
        return Report(
            slot=command.slot,
            host=self.name,
            positions={p: self._position(p, command.horizon) for p in hosted},
            installed=hosted,
            usage={p: Usage(0.001234 * command.job, 1000 * command.job) for p in hosted},
            busy_s=0.0123,
        ).encode()

    def _position(self, partition: str, horizon: int) -> int:
        index = int(partition.rpartition(".")[2])
        return max(0, horizon - LAG + index % LAG) if index < self._scattered else horizon


class Wire:
    """The hosts by node, and what the newest job has carried: bytes of `orders`, `reports`, `functions` of its stages, and
    `bundles` between full hosts."""

    def __init__(self, folder: Path, full: bool, scattered: int = 0) -> None:
        self.full = full
        self.stages = STAGES
        """Of a job."""
        self.hosts: dict[str, Light | Host] = {}
        self.orders = self.reports = self.functions = self.bundles = 0
        self.cpu_s = 0.0
        """CPU of the hosts in the newest job, and of counting; the driver has none of it."""
        self._folder, self._scattered = folder, scattered

    def start(self, nodes: Sequence[str]) -> None:
        """One host a node."""
        for node in nodes:
            self.hosts[node] = (
                Host(f"host-{node}", Path(tempfile.mkdtemp(dir=self._folder)))
                if self.full
                else Light(f"host-{node}", self._scattered)
            )

    def connect(self, hosts: Sequence[str]) -> WiredJobs:
        """What the engine takes for a Spark that is connected to these nodes."""
        return WiredJobs(self, hosts)


class WiredJobs:
    """Runs a job on the hosts of a wire."""

    def __init__(self, wire: Wire, hosts: Sequence[str]) -> None:
        self._wire, self._hosts = wire, [wire.hosts[host] for host in hosts]
        self.link, self.why_chained, self.link_key = 0, "", ""
        self.stands, self.ended = True, ""

    def close(self) -> None:
        """It holds nothing."""

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """See `reprise.spark_jobs.engine.chain.Chain.run`."""
        began, wire, stages = time.thread_time(), self._wire, self._wire.stages
        functions = [Stage(job, number, number == stages - 1) for number in range(stages)]
        reports = self._exchange(job, orders, stages)
        wire.orders, wire.reports = sum(map(len, orders)), sum(map(len, reports))
        wire.functions = len(orders) * sum(len(CloudPickleSerializer().dumps(stage)) for stage in functions)
        wire.cpu_s = time.thread_time() - began
        return [Report.decode(report) for report in reports]

    def _exchange(self, job: Order, orders: Sequence[bytes], stages: int) -> list[bytes]:
        inboxes: list[list[bytes]] = [[] for _ in orders]
        reports = []
        self._wire.bundles = 0
        for stage in range(stages):
            outgoing: list[list[bytes]] = [[] for _ in orders]
            for slot, host in enumerate(self._hosts):
                if isinstance(host, Light):
                    if stage == 0:
                        reports.append(host.work(orders[slot]))
                    continue
                if stage == 0:
                    host.begin(host.orders.read(orders[slot]))
                bundles, report = host.stage(job, stage, inboxes[slot], stage == stages - 1)
                for target, bundle in bundles:
                    outgoing[target].append(bundle)
                    self._wire.bundles += len(bundle)
                if report is not None:
                    reports.append(report.encode())
            inboxes = outgoing
        return reports
