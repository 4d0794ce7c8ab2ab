"""A driver with exchanges over the nodes of an embedded cluster: `python -m tools.testbed.exchange_lab ARGUMENTS`.

A process of its own, as a SparkContext takes over the Python process it is in.  `ARGUMENTS` is JSON: master, driver's host,
java options, nodes by address, scratch folder.  It runs each step that is named and prints its findings, a line each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext

from reprise.controller.agent.announcing import announce
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.engine.chain import configuration
from reprise.spark_jobs.exchange.exchange import (
    Exchange,
    ExchangeError,
    executor_ids,
    window_bytes,
)
from reprise.spark_jobs.exchange.probe import probe, refusal
from reprise.spark_jobs.exchange.relays import Relays
from tools.testbed.exchange_host import HEAD
from tools.testbed.waiting import until


class HostProcess:
    """One that stands for the partition host of a node."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.testbed.exchange_host", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def up(self) -> HostProcess:
        assert self.process.stdout is not None and self.process.stdout.readline() == "UP\n"
        return self

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Lab:
    """The steps; each gives what a test asserts on."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        settings = {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": arguments["executor_options"],
            "spark.driver.extraJavaOptions": arguments["driver_options"],
            "spark.driver.host": arguments["here"],
            "spark.driver.bindAddress": arguments["here"],
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        }
        conf = configuration(arguments["master"], "exchange", settings)
        self.context = SparkContext(conf=conf)
        self.context.setLogLevel("ERROR")
        self.withdraw = announce(self.context)
        nodes = arguments["nodes"]
        self.addresses = sorted(nodes)
        ids = until(self._executors, "executors")
        self.hosts: dict[str, HostProcess] = {}
        self.homes = {
            address: next(Path(arguments["scratch"], "nodes", nodes[address], "work").glob(f"*/{executor}"))
            for address, executor in zip(self.addresses, ids, strict=True)
        }
        self.numbers = 0
        self.running: Exchange | None = None

    def close(self) -> None:
        for host in self.hosts.values():
            host.end()
        self.withdraw()
        self.context.stop()

    # -- what steps are made of

    def next(self, addresses: list[str]) -> Exchange:
        self.numbers += 1
        made = Exchange(self.context, Relays.compiled(self.context), addresses, self.numbers)
        made.start()
        return made

    def host(self, address: str) -> HostProcess:
        if address not in self.hosts:
            self.hosts[address] = HostProcess(self.homes[address]).up()
        return self.hosts[address]

    def there(self, exchange: Exchange) -> float:
        """Wait for all its relays; seconds."""
        began = time.monotonic()
        until(
            lambda: all(self.host(a).ask(there=exchange.number)["there"] for a in exchange.hosts),
            "relays of an exchange",
            90.0,
            report=lambda: exchange.failure,
        )
        return time.monotonic() - began

    def attach(self, exchange: Exchange) -> None:
        for address in exchange.hosts:
            self.host(address).ask(attach=exchange.number)

    def send(self, exchange: Exchange, count: int, gap_s: float, size: int) -> None:
        for slot, address in enumerate(exchange.hosts):
            order = {"slot": slot, "slots": len(exchange.hosts), "count": count, "gap_s": gap_s, "size": size}
            self.host(address).ask(send=order)

    def pace(self) -> float:
        """Seconds between two rounds of messages to all others, with which each node sends 400 a second."""
        return (len(self.addresses) - 1) / 400

    def arrived(self, exchange: Exchange, slots: int | None = None) -> dict[str, Any]:
        """Wait until all that was sent has come; what is wrong with it, and how late it was.  With `slots`: among the
        first ones alone."""
        reports: list[dict[str, Any]] = []

        def complete() -> bool:
            reports[:] = [self.host(a).ask(report=True) for a in exchange.hosts[:slots]]
            return bool(exchange.failure) or (
                all(report["done"] for report in reports) and _missing(reports) == 0
            )

        with contextlib.suppress(AssertionError):
            until(complete, "frames", 90.0, poll_s=0.1)
        late = sorted(ms for report in reports for ms in report["late_ms"])
        return {
            "missing": _missing(reports),
            "wrong": [wrong for report in reports for wrong in report["wrong"]],
            "count": len(late),
            "p50_ms": round(_quantile(late, 0.5), 2),
            "p99_ms": round(_quantile(late, 0.99), 2),
            "max_ms": round(_quantile(late, 1.0), 2),
            "mb_s": [
                round(r["bytes"] / 1e6 / r["span_s"], 1) if r["span_s"] else 0.0 for r in reports
            ],
            "load": os.getloadavg()[0],
        }  # fmt: skip

    def ended(self, exchange: Exchange, began: float) -> dict[str, Any]:
        until(lambda: exchange.failure, "the exchange ends", 90.0)
        return {"failure": exchange.failure, "seconds": round(time.monotonic() - began, 2)}

    def fresh(self, addresses: list[str]) -> Exchange:
        """An exchange that all hosts have attached, instead of the one before."""
        made = self.next(addresses)
        self.there(made)
        self.attach(made)
        if self.running is not None:
            self.running.stop()
        self.running = made
        return made

    # -- steps

    def probed(self) -> dict[str, Any]:
        began = time.monotonic()
        found = probe(self.context, self.addresses)
        seconds = time.monotonic() - began
        began = time.monotonic()
        again = probe(self.context, self.addresses)
        conf = {str(pair._1()): str(pair._2()) for pair in self.context._jsc.sc().conf().getAll()}
        return {
            "probe": found,
            "again": again,
            "seconds": round(seconds, 2),
            "again_s": round(time.monotonic() - began, 2),
            "refusal": refusal(conf),
            "authenticated": conf.get("spark.authenticate"),
            "nowhere": probe(self.context, [*self.addresses, "127.99.99.99"]),
        }

    def late_hosts(self) -> dict[str, Any]:
        """Relays that are there before their hosts."""
        exchange = self.running = self.next(self.addresses)
        until(lambda: self._active(exchange) == 2 * len(self.addresses), "all relays", 60.0)
        before = exchange.desk.ready(0.2)
        self.there(exchange)
        stands = exchange.desk.ready(20.0)
        self.attach(exchange)
        return {"failure": exchange.failure, "before": before, "stands": stands}

    def small(self) -> dict[str, Any]:
        assert self.running is not None
        self.attach(self.running)
        self.send(self.running, 300, self.pace(), 100)
        return self.arrived(self.running)

    def mixed(self) -> dict[str, Any]:
        """Sizes from nothing to more than the queue of a relay."""
        self.running = self.fresh(self.addresses)
        for size in (0, 1, 17, 18, 60, 5_000, 65_536, 1 << 20, 9 << 20):
            self.send(self.running, 3, 0.0, size)
            found = self.arrived(self.running)
            if found["missing"] or found["wrong"]:
                return {"size": size, **found}
        return found

    def bulk(self) -> dict[str, Any]:
        self.running = self.fresh(self.addresses)
        self.send(self.running, 300, 0.0, 65_000)
        return self.arrived(self.running)

    def beside_a_job(self) -> dict[str, Any]:
        self.running, nodes = self.fresh(self.addresses), len(self.addresses)
        jobs = self._jobs(lambda: self.context.parallelize(range(nodes), nodes).map(lambda x: x + 1).count())
        with jobs as times:
            self.send(self.running, 600, self.pace(), 100)
            found = self.arrived(self.running)
        return {**found, "jobs": len(times), "job_ms": round(_quantile(sorted(times), 0.5), 1)}

    def beside_a_chain(self) -> dict[str, Any]:
        """Three stages with two shuffles, of messages as small as those of the exchange."""
        self.running, nodes = self.fresh(self.addresses), len(self.addresses)

        def chain() -> object:
            rows = self.context.parallelize(range(nodes), nodes).map(lambda slot: (slot, b"x"))
            for _ in range(2):
                rows = rows.partitionBy(nodes, int).map(lambda row: ((row[0] + 1) % nodes, row[1]))
            return rows.count()

        with self._jobs(chain) as times:
            self.send(self.running, 600, self.pace(), 100)
            found = self.arrived(self.running)
        return {**found, "jobs": len(times), "chain_ms": round(_quantile(sorted(times), 0.5), 1)}

    def make_before_break(self) -> dict[str, Any]:
        before = self.fresh(self.addresses[:2])
        self.send(before, 200, 0.005, 100)
        after = self.next(self.addresses)
        beside_s = self.there(after)
        of_before = self.arrived(before)
        self.host(self.addresses[0]).ask(attach=after.number)
        time.sleep(0.5)
        alive = before.failure
        self.attach(after)
        self.send(after, 50, 0.002, 100)
        of_after = self.arrived(after)
        before.stop()
        self.running = after
        return {
            "before": of_before,
            "after": of_after,
            "beside_s": round(beside_s, 2),
            "while_one_has_changed_over": alive,
            "stopped": before.failure,
            "goes_on": after.failure,
        }

    def slots_are_let_go(self) -> dict[str, Any]:
        """One more exchange than there are slots, one after the other, beside one that runs."""
        failures = []
        for _ in range(3):
            exchange = self.next(self.addresses)
            self.there(exchange)
            failures.append(exchange.failure)
            began = time.monotonic()
            exchange.stop()
            seconds = time.monotonic() - began
        return {"failures": failures, "stop_s": round(seconds, 2), "ended": exchange.failure}

    def host_dies(self) -> dict[str, Any]:
        self.running = self.fresh(self.addresses)
        began = time.monotonic()
        self.hosts.pop(self.addresses[1]).end()
        found = self.ended(self.running, began)
        self.running = self.fresh(self.addresses)
        self.send(self.running, 20, 0.0, 100)
        return {**found, "next": self.arrived(self.running)}

    def executor_dies(self) -> dict[str, Any]:
        self.running = self.fresh(self.addresses)
        self.send(self.running, 20, 0.0, 100)
        before = self.arrived(self.running)
        victim = self._java(self.addresses[2])
        began = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)
        found = self.ended(self.running, began)
        living = [self.host(a).process.poll() is None for a in self.addresses[:2]]
        self.running = self.fresh(self.addresses[:2])
        seconds = time.monotonic() - began
        self.send(self.running, 20, 0.0, 100)
        after = self.arrived(self.running)
        return {**found, "before": before, "living": living, "next_s": round(seconds, 2), "next": after}

    def one_does_not_read(self) -> dict[str, Any]:
        """The last host stands still, with as much on its way to it as there may be: what the others say goes on."""
        self.running = self.fresh(self.addresses)
        last, others = len(self.addresses) - 1, len(self.addresses) - 1
        frozen = self.host(self.addresses[last]).process
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            size = 60_000
            count = window_bytes(len(self.addresses)) // (size + HEAD.size)
            for slot in range(others):
                order = {"slot": slot, "slots": others, "count": count, "gap_s": 0.0, "size": size}
                self.host(self.addresses[slot]).ask(send={**order, "only": last})
            until(
                lambda: all(self.host(a).ask(report=True)["done"] for a in self.addresses[:others]),
                "frames to the one that stands still are taken",
            )
            for slot in range(others):
                order = {"slot": slot, "slots": others, "count": 200, "gap_s": 0.005, "size": 100}
                self.host(self.addresses[slot]).ask(send=order)
            meanwhile = self.arrived(self.running, others)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        return {"meanwhile": meanwhile, "at_last": self.arrived(self.running), "each": count}

    def junk(self) -> dict[str, Any]:
        """A stranger connects to each port of an executor, and says something."""
        self.running = self.fresh(self.addresses)
        process = self._java(self.addresses[0])
        ports = {c.laddr for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        for port in ports:
            with contextlib.suppress(OSError), socket.create_connection(port, 5.0) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\nHost: anybody\r\n\r\n" * 20)
                stranger.settimeout(0.5)
                stranger.recv(1)
        self.send(self.running, 20, 0.0, 100)
        found = self.arrived(self.running)
        return {"ports": len(ports), "failure": self.running.failure, "wrong": found["wrong"]}

    def objects(self) -> dict[str, Any]:
        """What the relays' reader of records makes of a serialised object: asked of its class, here."""
        jvm, gateway = self.context._jvm, self.context._gateway
        loader = Relays.compiled(self.context)._java.getClass().getClassLoader()
        held = jvm.java.io.ByteArrayOutputStream()
        stream = jvm.java.io.ObjectOutputStream(held)
        stream.writeObject(jvm.java.util.HashMap())
        stream.close()
        wire = jvm.java.lang.Class.forName("reprise.Relays$Wire", True, loader)
        made = wire.getConstructor(gateway.new_array(jvm.java.lang.Class, 0)).newInstance(
            gateway.new_array(jvm.java.lang.Object, 0)
        )  # fmt: skip
        reader = made.newInstance().deserializeStream(jvm.java.io.ByteArrayInputStream(held.toByteArray()))
        try:
            found = str(reader.readObject(None))
        except Exception as error:
            found = str(error)
        return {"object": next(line for line in found.splitlines() if "IllegalState" in line)}

    # -- helpers

    def _java(self, address: str) -> psutil.Process:
        """The executor there."""
        (found,) = [
            process
            for process in psutil.process_iter(["cmdline", "cwd"])
            if process.info["cwd"] == str(self.homes[address])
            and "java" in (process.info["cmdline"] or [""])[0]
        ]
        return found

    def _executors(self) -> list[str]:
        try:
            return executor_ids(self.context, self.addresses)
        except ExchangeError:
            return []

    def _active(self, exchange: Exchange) -> int:
        tracker = self.context._jsc.sc().statusTracker()
        jobs = tracker.getJobIdsForGroup(exchange.group)
        stages = [s for job in jobs for s in tracker.getJobInfo(job).get().stageIds()]
        infos = [tracker.getStageInfo(stage) for stage in stages]
        return sum(info.get().numActiveTasks() for info in infos if info.isDefined())

    @contextlib.contextmanager
    def _jobs(self, job: Any) -> Iterator[list[float]]:
        """One job after the other beside what is done; how long each took, ms."""
        over, times = threading.Event(), []

        def run() -> None:
            while not over.is_set():
                began = time.monotonic()
                job()
                times.append((time.monotonic() - began) * 1e3)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield times
        finally:
            over.set()
            thread.join(60.0)


def _missing(reports: list[dict[str, Any]]) -> int:
    """How many frames were taken by a link and have not come."""
    missing = 0
    for source, sender in enumerate(reports):
        for target, sent in sender["sent"].items():
            if int(target) < len(reports):
                missing += sent - reports[int(target)]["got"].get(str(source), 0)
    return missing


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def run(cluster: EmbeddedCluster, steps: Sequence[str], seconds: float = 540.0) -> list[dict[str, Any]]:
    """What each of these steps finds on that cluster.  AssertionError with the driver's output where one does not end."""
    arguments = {
        "master": cluster.master_url,
        "here": cluster.zookeeper.host,
        "executor_options": cluster.executor_java_options(),
        "driver_options": cluster.driver_java_options(),
        "nodes": {cluster.host_of(node): node for node in cluster.nodes},
        "scratch": str(cluster.scratch),
        "steps": list(steps),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tools.testbed.exchange_lab", json.dumps(arguments)],
        env={"PYTHONPATH": str(Path.cwd())} | os.environ | dict(cluster.spark_env()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )
    found = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert [step["step"] for step in found] == list(steps), done.stdout[-4000:]
    return found


def main() -> None:
    """Each step's findings as a line; the first that fails ends it."""
    arguments = json.loads(sys.argv[1])
    lab = Lab(arguments)
    try:
        for step in arguments["steps"]:
            began = time.monotonic()
            found = getattr(lab, step)()
            print("FOUND", json.dumps({"step": step, "took_s": round(time.monotonic() - began, 1), **found}))
            sys.stdout.flush()
    finally:
        lab.close()


if __name__ == "__main__":
    main()
