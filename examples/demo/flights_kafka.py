"""`python -m examples.demo.flights_kafka`: Kafka in, Kafka out, eight of ten nodes lost, and every row counted.

A real broker and a real cluster are started; flights are sent into a topic while a topology turns them into delays by
carrier, airport and route.  The second half is sent after the nodes were killed.  The verdict is what a consumer of
committed messages finds: each (key, window) once, with the numbers that a group-by over all flights gives.  Exit code 0
when that holds and the nodes were killed as scheduled.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.demo import kafka_data as data
from reprise.controller.cli.live import display_for
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.faults.faults import load_faults
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology
from tools.kafka.server import KafkaCluster

EXAMPLES = Path(__file__).parents[1]
NAME = "kafka"
TIMEOUT_S = 600.0
"""Of the run; it takes two minutes on two idle cores."""
READERS = 2
"""Source partitions of the example."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, judge."""
    options = parse(arguments)
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    try:
        result, found = play(console, options)
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has ended")
        return 130
    good = show(console, result, found)
    console.print(f"The demo took {time.monotonic() - began:.0f} s.")
    return 0 if good else 1


def play(
    console: Console, options: argparse.Namespace, running: EmbeddedCluster | None = None
) -> tuple[RunResult, list[data.Found]]:
    """Broker, cluster, one run, and what the topics then hold.  `running`: a cluster that stays, instead of one for this."""
    if options.out.exists():
        shutil.rmtree(options.out)
    options.out.mkdir(parents=True)
    frame = data.flights(options.rows)
    with KafkaCluster(log_dir=options.out / "logs") as kafka:
        data.make_topics(kafka.bootstrap)
        resource = _resource(options, kafka.bootstrap, frame.height)
        faults = load_faults(options.faults, resource.nodes.count)
        feeder = data.Feeder(kafka.bootstrap, frame, options.seconds)
        config = RunConfig(
            resource=resource, out=options.out / NAME, faults=faults, cluster=running, timeout_s=TIMEOUT_S
        )
        kills = sum(fault.action == "kill" for fault in faults)
        try:
            feeder.start()
            with display_for(console, resource.name, options.quiet) as display:

                def watch(state: RunState, actions: list[dict[str, Any]]) -> None:
                    display.watch(state, actions)
                    if sum(action["action"] == "kill" for action in actions) >= kills:
                        feeder.second_half.set()

                result = run_topology(config, watch, display.progress)
        finally:
            feeder.second_half.set()
            if feeder.is_alive():
                feeder.join(data.TIMEOUT_S)
        if result.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        return result, data.check(kafka.bootstrap, frame)


def _resource(options: argparse.Namespace, address: str, rows: int) -> StreamTopology:
    changes: dict[str, object] = {
        "sources[flights].with.brokers": address,
        # however late the topology begins to read, it is at work for as long as sending takes
        "sources[flights].with.batch_rows": data.batch_rows(rows, options.seconds, READERS),
        "nodes.cpu": options.cpu,
        "sources[flights].with.until": data.until(rows),
        **{f"operators[{o.topic}].output.sink.with.brokers": address for o in data.OUTPUTS},
    }
    return load(options.file, nodes=options.nodes, overrides=changes)


def show(console: Console, result: RunResult, found: Sequence[data.Found]) -> bool:
    """One line a topic and the verdict."""
    for topic in found:
        console.print(
            f"topic {topic.topic}: {topic.wanted} (key, window) expected, {topic.missing} missing, {topic.twice} twice, "
            f"{topic.different} with other numbers",
            style="green" if topic.good else "bold red",
            highlight=False,
        )
    lost = result.incident.get("lost_s")
    if lost is not None:
        console.print(f"availability lost, weighted by priority: {float(lost):.1f} s", highlight=False)
    missed = [fault for fault in result.record.get("unfired", ()) if fault.startswith("kill")]
    if missed:
        console.print(f"did not happen: {', '.join(missed)}", style="bold red", highlight=False)
    good = result.ok and bool(found) and all(topic.good for topic in found) and not missed
    console.print("PASSED" if good else "FAILED", style="bold green" if good else "bold red")
    return good


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo.flights_kafka", description=__doc__)
    parser.add_argument("--file", type=Path, default=EXAMPLES / "flights-kafka.yaml", help="topology")
    parser.add_argument("--faults", type=Path, default=EXAMPLES / "faults" / "demo.yaml")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--cpu", default="200m", help="of a node; fewer nodes need more each")
    parser.add_argument("--rows", type=int, default=120_000, help="flights to send")
    parser.add_argument("--seconds", type=float, default=50.0, help="how long sending them takes")
    parser.add_argument("--out", type=Path, default=Path("out/demo-kafka"), help="replaced when it is there")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
