"""`reprise status`: how a running topology stands, read from its ZooKeeper."""

from __future__ import annotations

import threading
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from controller.cli import exits
from controller.cli.live import action_text
from controller.cli.options import DURATION
from controller.cli.view import page
from controller.report.layout import is_running, read_record
from controller.run.observation import Observer
from controller.run.state import run_state
from spark_jobs.topology import Topology, expand, from_json, load_topology

CONNECT_S = 8.0
ACTIONS = 4


@click.command("status")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of a run that is running.")
@click.option("--zk", help="ZooKeeper hosts, instead of --out.")
@click.option("--root", help="/reprise/<namespace>/<topology>, with --zk.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="The topology, with --zk.")
@click.option("-w", "--watch", is_flag=True, help="Again and again until Ctrl-C, or until the run ends.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="With --watch.")
def command(
    out: Path | None, zk: str | None, root: str | None, file: Path | None, watch: bool, interval: float
) -> None:
    """Nodes, queries with their state and lag, the current plan, and why each waiting query waits.

    A query is available when all of its partitions are at work and its output is close to the newest batch; recovering
    when everything it needs is placed but not there yet, or behind; waiting when something has no place.

    \b
    Examples:
      reprise status --out out/eight
      reprise status --out out/eight --watch
      reprise status --zk 10.0.0.5:2181 --root /reprise/default/flights -f examples/flights.yaml
    """
    topology, hosts, path = _address(out, zk, root, file)
    observer = Observer(hosts, path)
    console = Console()
    try:
        observer.open(CONNECT_S)
    except Exception as error:
        raise exits.NotRunningError(str(error)) from error
    try:
        if not observer.exists(path):
            raise exits.NotRunningError(f"nothing runs at {path} in ZooKeeper {hosts}")
        if watch:
            _watch(console, topology, observer, out, interval)
        else:
            console.print(page(topology.name, run_state(topology, observer.read()), _actions(out), 200))
    finally:
        observer.close()


def _watch(
    console: Console, topology: Topology, observer: Observer, out: Path | None, interval: float
) -> None:
    pause = threading.Event()
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            rows = max(6, console.size.height - ACTIONS - 8) if console.is_terminal else 200
            live.update(page(topology.name, run_state(topology, observer.read()), _actions(out), rows))
            if out is not None and not is_running(read_record(out) or {}):
                return
            pause.wait(interval)


def _address(
    out: Path | None, zk: str | None, root: str | None, file: Path | None
) -> tuple[Topology, str, str]:
    if out is not None:
        record = read_record(out)
        if record is None:
            raise click.BadParameter(f"{out} holds no run (no run.json)", param_hint="--out")
        if not is_running(record):
            outcome = record.get("outcome")
            ended = "its process is gone" if outcome == "running" else f"it ended: {outcome}"
            raise exits.NotRunningError(f"nothing runs in {out}, {ended}; see `reprise history --out {out}`")
        if "zk" not in record:
            raise exits.NotRunningError(f"the run in {out} is still starting its cluster")
        return expand(from_json((out / "topology.json").read_text())), str(record["zk"]), str(record["root"])
    if not (zk and root and file):
        raise click.UsageError("give --out DIR, or all of --zk HOSTS, --root PATH and -f FILE")
    return expand(load_topology(file)), zk, root


def _actions(out: Path | None) -> list[str]:
    record = read_record(out) if out is not None else None
    return [action_text(action) for action in (record or {}).get("actions", [])[-ACTIONS:]]
