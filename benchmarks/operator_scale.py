"""`python -m benchmarks.operator_scale`: an operator with a thousand topologies on five thousand machines.

With `--operators 2` a second process waits for the Lease meanwhile, and the cold start is its taking over.  With
`--shares 2` two operators lead at once, each with a Lease and half of the topologies in a namespace of its own; the writes
of all are counted together.  With `--without` the operator lacks one or more of what makes it fast, so that each can be
measured alone.

Real: the operator, API server, etcd, ZooKeeper.  Not there: Spark, kubelets and Kubernetes' controllers; `operator_fleet`
and `operator_drivers` write what they would.  Bursts end the heartbeats of hundreds of machines at once, and their Nodes
turn NotReady afterwards.  Prints what was measured beside the limits of ranges.yaml; what lies outside is in bold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.operator_drivers import Drivers
from benchmarks.operator_fleet import NAMESPACE, Fleet, folder_of
from benchmarks.operator_variant import SWITCHES
from benchmarks.operator_watch import AUDIT_POLICY, Cost, by_kind, cost, most_in, writes
from benchmarks.overhead_report import judge, ranges
from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import Jvm
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.client import make_client
from tools.testbed.control_plane import ControlPlane
from tools.testbed.rest import RestError

REPOSITORY = Path(__file__).parents[1]
SETTLE_S = 1.0
NOT_READY_AFTER_S = 3.0
NEW_AFTER_S = 10.0
LOOK_AFTER_S = 4.0
PER_TOPOLOGY = 2
"""Machines that a topology loses in a burst: a correlated failure."""


@dataclass(slots=True)
class Results:
    """Rows of the report: name in ranges.yaml, value; and lines beside them."""

    values: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(time.strftime("%H:%M:%S"), text, flush=True)


@dataclass(frozen=True, slots=True)
class Leaders:
    """The operators that lead at once, each for its share of the topologies."""

    processes: Sequence[subprocess.Popen[bytes]]

    @property
    def cost(self) -> Cost:
        """CPU of all of them, memory of the largest."""
        each = [cost(process) for process in self.processes]
        return Cost(
            *(sum(c.cpu_s for c in each), max(c.rss_mib for c in each), max(c.peak_mib for c in each))
        )

    def end(self) -> None:
        """In order: each gives its Lease back."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(60)


class World:
    """Everything but the operator."""

    def __init__(
        self, folder: Path, topologies: int, per: int, without: Sequence[str] = (), shares: int = 1
    ) -> None:
        """`without`: what of `operator_variant.SWITCHES` the operators lack; `shares`: operators that lead at once."""
        self.folder = folder
        self.without = tuple(without)
        prefix, claim = addresses.claim_prefix()
        self.reaper = ProcessReaper(keep_open=(claim.fileno(),))
        claim.close()
        head = f"{prefix}.{addresses.HEAD}"
        jvm = Jvm(find_java(self.reaper.scratch / "java"), self.reaper.scratch / "log4j2.properties")
        jvm.write_log_config()
        self.zookeeper = ZooKeeperServer(
            jvm, self.reaper, host=head, log=folder / "zookeeper.log", heap_mb=512
        )
        policy, self.audit = folder / "audit-policy.json", folder / "audit.log"
        policy.write_text(json.dumps(AUDIT_POLICY), encoding="utf-8")
        flags = (
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit}",
            "--disable-admission-plugins=TaintNodesByCondition",  # no controller would take the taint off
        )
        self.plane = ControlPlane(self.reaper, folder / "control-plane", head, flags)
        self.settings = OperatorSettings(
            namespace=NAMESPACE, identity="op", zk=self.zookeeper.hosts, image="load:1", settle_s=SETTLE_S
        )
        self._shape = topologies, per, shares
        self._ending: list[Callable[[], None]] = []

    def start(self) -> None:
        self.zookeeper.launch()
        self.plane.start(managers=False)
        self.zookeeper.wait_ready()
        self.rest = self.plane.rest()
        for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
            definition = yaml.safe_load(path.read_text(encoding="utf-8"))
            self.rest.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        until(self._serves_topologies, "the kinds", 60)
        self.fleet = Fleet(self.rest, self.settings, *self._shape)
        self.fleet.create()
        self.drivers = Drivers(self.zookeeper.hosts, self.fleet.members.values())
        self._ending.append(self.drivers.stop)
        self.client = make_client(self.zookeeper.hosts, 30.0)
        self._ending.append(self.client.close)
        self.client.start(timeout=30)

    def _serves_topologies(self) -> bool:
        try:
            self.rest.get(folder_of(NAMESPACE))
        except RestError:  # the definitions are there, their storage is not yet
            return False
        return True

    def operators(self, name: str) -> Leaders:
        """One for each share."""
        return Leaders([self.operator(f"{name}-{ns}", ns) for ns in self.fleet.namespaces])

    def operator(self, identity: str, namespace: str = NAMESPACE) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "benchmarks.operator_variant", *self.without, "--",
            "--namespace", namespace, "--identity", identity,
            "--zk", self.zookeeper.hosts, "--image", "load:1", "--watch", namespace, "--health-port", "0",
            "--settle", str(SETTLE_S), "--own-namespace",
        ]  # fmt: skip
        config = self.plane.write_kubeconfig(self.folder / "operator.kubeconfig", "operator")
        environment = self.reaper.environment() | {"KUBECONFIG": str(config), "PYTHONPATH": str(REPOSITORY)}
        process, _ = launch.spawn(command, environment, self.folder / f"{identity}.log")
        return process

    def decided(self) -> int:
        """Topologies that a coordinator has looked at and said so."""
        answers = [
            self.client.get_async(f"{d.root}/{paths.COORDINATOR}") for d in self.drivers.drivers.values()
        ]
        return sum(b'"rule"' in _data(answer) for answer in answers)

    def plans(self, names: list[str], since: float) -> dict[str, float]:
        """When each of these topologies had its first plan, seconds since the epoch."""
        found = {}
        for name in names:
            folder = f"{self.drivers.drivers[name].root}/{paths.PLANS}"
            stats = [self.client.exists(f"{folder}/{plan}") for plan in self.client.get_children(folder)]
            if late := [stat.created for stat in stats if stat is not None and stat.created >= since]:
                found[name] = min(late)
        return found

    def open_incidents(self, names: list[str]) -> int:
        return sum(
            self.client.exists(f"{self.drivers.drivers[n].root}/{paths.INCIDENT}") is not None for n in names
        )

    def stop(self) -> None:
        """Clients before their server: one that is left without it waits for ever when the interpreter ends."""
        for end in self._ending:
            end()
        self.reaper.close()


def _data(answer: Any) -> bytes:
    try:
        return bytes(answer.get(30)[0])
    except Exception:  # not there yet
        return b""


def until(condition: Callable[[], object], what: str, seconds: float, poll_s: float = 0.5) -> float:
    """Seconds that it took; raises TimeoutError."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(poll_s)
    return time.monotonic() - began


def first_sight(world: World, results: Results) -> Leaders:
    """Operators that have never seen these topologies: they write a status to each."""
    began, leaders = time.time(), world.operators("op-1")
    names = world.fleet.names
    took = until(lambda: world.decided() == len(names), "all looked at", 600)
    results.note(f"first sight: all decided after {took:.1f} s, {leaders.cost.cpu_s:.1f} CPU s")
    told = until(lambda: _told(world) == len(names), "all have a status", 900, 2.0)
    found = writes(world.audit, began, time.time())
    results.note(f"first sight: every status written after {took + told:.1f} s; writes: {by_kind(found)}")
    return leaders


def _told(world: World) -> int:
    items = [item for ns in world.fleet.namespaces for item in world.rest.get(folder_of(ns))["items"]]
    return sum(bool((item.get("status") or {}).get("conditions")) for item in items)


def cold(
    world: World, results: Results, leaders: Leaders, waiting: subprocess.Popen[bytes] | None
) -> Leaders:
    """The operators end in order and others start: from their first instruction to the last topology.  `waiting`: one
    that takes over instead, and what it took is counted from the end of the first."""
    leaders.end()
    if waiting is None:
        until(lambda: world.decided() == 0, "nobody leads", 30)
    leaders = world.operators("op-2") if waiting is None else Leaders([waiting])
    took = until(lambda: world.decided() == len(world.fleet.names), "all looked at", 600, 0.2)
    now = leaders.cost
    results.values["cold list to all reconciled, s"] = took
    results.note(f"cold start: {took:.1f} s, {now.cpu_s:.1f} CPU s, {now.rss_mib:.0f} MiB")
    return leaders


def steady(world: World, results: Results, leaders: Leaders, seconds: float) -> None:
    """Nothing happens."""
    time.sleep(10)  # the start's own work is over
    before, began = leaders.cost, time.time()
    time.sleep(seconds)
    now, found = leaders.cost, writes(world.audit, began, time.time())
    results.note(
        f"steady {seconds:.0f} s: {(now.cpu_s - before.cpu_s) / seconds:.2f} cores, {now.rss_mib:.0f} MiB, "
        f"{len(found) / seconds:.1f} writes/s ({by_kind(found)})"
    )


@dataclass(frozen=True, slots=True)
class Burst:
    """The topologies that lose machines together."""

    group: str
    names: list[str]

    @property
    def pods(self) -> list[tuple[str, str]]:
        return [(name, f"{name}-exec-{i}") for name in self.names for i in range(PER_TOPOLOGY)]

    @property
    def machines(self) -> list[str]:
        return [f"m-{name}-{i}" for name in self.names for i in range(PER_TOPOLOGY)]


def strike(world: World, results: Results, leaders: Leaders, burst: Burst) -> list[float]:
    """One burst, to the end of its incidents; seconds from the failure to each topology's plan."""
    before = leaders.cost
    at = world.drivers.cut(burst.group, burst.pods)
    after = threading.Timer(NOT_READY_AFTER_S, world.fleet.not_ready, (burst.machines,))
    after.start()
    # records say when they were made, and asking for them takes its share of two cores
    time.sleep(LOOK_AFTER_S)
    until(lambda: len(world.plans(burst.names, at)) == len(burst.names), "plans", 120, 1.0)
    planned = leaders.cost
    delays = sorted(t - at for t in world.plans(burst.names, at).values())
    time.sleep(max(0.0, at + NEW_AFTER_S - time.time()))
    for name in burst.names:
        for i in range(PER_TOPOLOGY):
            pod, machine = f"{name}-exec-{10 + i}", f"n-{burst.group}-{name}-{i}"
            world.fleet.add_machine(machine)
            world.fleet.executor(world.fleet.members[name], pod, machine)
            world.drivers.join(name, pod)
    closed = until(lambda: world.open_incidents(burst.names) == 0, "incidents closed", 240, 1.0)
    time.sleep(5)
    now, found = leaders.cost, writes(world.audit, at, time.time())
    rate = most_in(found, 5.0)
    results.values["writes/s in a burst, over 5 s"] = max(
        rate, results.values.get("writes/s in a burst, over 5 s", 0)
    )
    results.note(
        f"burst of {len(burst.machines)} machines, {len(burst.names)} topologies: plans after "
        f"{statistics.median(delays):.2f} s median, {_p99(delays):.2f} s p99, {delays[-1]:.2f} s last "
        f"({planned.cpu_s - before.cpu_s:.1f} CPU s); closed {closed:.0f} s after the last new machine; "
        f"{now.cpu_s - before.cpu_s:.1f} CPU s in all, {now.rss_mib:.0f} MiB; most writes/s {rate:.1f} over 5 s, "
        f"{most_in(found, 1.0):.0f} in one second; writes: {by_kind(found)}"
    )
    return delays


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def run(world: World, results: Results, bursts: list[Burst], steady_s: float, operators: int) -> None:
    leaders = first_sight(world, results)
    waiting = [world.operator(f"op-waits-{number}") for number in range(1, operators)]
    for other in waiting:
        until(lambda other=other: cost(other).cpu_s > 0.0, "an operator that waits", 60)  # type: ignore[misc]
    leaders = cold(world, results, leaders, waiting.pop(0) if waiting else None)
    if operators > 1:
        waiting.append(world.operator("op-again"))
    steady(world, results, leaders, steady_s)
    delays = [d for burst in bursts for d in strike(world, results, leaders, burst)]
    results.values["failure to plan beyond settling, p99 s"] = _p99(delays) - SETTLE_S
    results.values["peak memory, MiB"] = leaders.cost.peak_mib
    for other in waiting:
        results.note(
            f"an operator that waited: {cost(other).cpu_s:.1f} CPU s, {cost(other).peak_mib:.0f} MiB"
        )
    Leaders(waiting).end()  # first, so that none of them takes over
    leaders.end()


def show(results: Results) -> str:
    """Measured beside limits, as Markdown."""
    lines = ["| what | measured | limit |", "|---|---|---|"]
    for name, limits in ranges("operator").items():
        value = results.values.get(name)
        text = "-" if value is None else f"{value:.2f}"
        good = value is not None and judge(value, limits)
        lines.append(f"| {name} | {text if good else f'**{text}**'} | {limits.get('most', '')} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in results.notes)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator_scale", description=__doc__)
    parser.add_argument("--topologies", type=int, default=1000)
    parser.add_argument("--per", type=int, default=5, help="machines a topology")
    parser.add_argument(
        "--bursts", default="200,300", help="machines that are lost at once, one burst after another"
    )
    parser.add_argument("--steady", type=float, default=60.0, help="seconds in which nothing happens")
    parser.add_argument("--operators", type=int, default=1, help="processes; all but one wait for the Lease")
    parser.add_argument(
        "--shares", type=int, default=1, help="operators that lead at once, a Lease and a namespace each"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=sorted(SWITCHES),
        help="what the operator is to lack",
    )
    parser.add_argument("--out", type=Path, default=Path("out/bench-operator"))
    options = parser.parse_args()
    if options.shares > 1 and options.operators > 1:
        parser.error("--shares: with --operators this is not measured; give one of them")
    options.out.mkdir(parents=True, exist_ok=True)
    results, load = Results(), os.getloadavg()[0]
    sizes, bursts, taken = [int(size) for size in options.bursts.split(",")], [], 0
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=options.out)).resolve()
    world = World(folder, options.topologies, options.per, options.without, options.shares)
    try:
        began = time.monotonic()
        world.start()
        for number, size in enumerate(sizes):
            count = size // PER_TOPOLOGY
            bursts.append(Burst(f"b{number}", world.fleet.names[taken : taken + count]))
            taken += count
        struck = {pod for burst in bursts for pod in burst.pods}
        every = [(m.name, pod) for m in world.fleet.members.values() for pod in m.pods.values()]
        world.drivers.beat("rest", [pair for pair in every if pair not in struck])
        for burst in bursts:
            world.drivers.beat(burst.group, burst.pods)
        world.drivers.start()
        partitions = sum(len(m.topology.partitions) for m in world.fleet.members.values())
        lacks = f"; without {', '.join(options.without)}" if options.without else ""
        results.note(
            f"{len(every)} machines, {options.topologies} topologies, {partitions} partitions, made in "
            f"{time.monotonic() - began:.0f} s; load {load:.1f} on {os.cpu_count()} cores; "
            f"operators: {options.operators}, shares: {options.shares}{lacks}; logs in {folder}"
        )
        run(world, results, bursts, options.steady, options.operators)
    finally:
        text = show(results)
        (options.out / "results.md").write_text(text + "\n", encoding="utf-8")
        print(text)
        world.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
