"""`reprise apply`: a run on this machine goes on with a changed topology: in place, or with other queries after a drain."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from reprise.controller.cli import exits
from reprise.controller.cli.change_page import show
from reprise.controller.cli.options import DURATION, parse_sets, sets_option, topology_option
from reprise.controller.cli.target_local import ZooKeeperTarget, of_run
from reprise.controller.local.report.layout import is_running, read_record
from reprise.controller.local.run.config import load
from reprise.controller.status.actions import QUERIES_CHANGED, QUERIES_REFUSED
from reprise.controller.zookeeper.topology_wish import TopologyWish
from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.platform import PLATFORM
from reprise.spark_jobs.topology import StreamTopology, to_json
from reprise.spark_jobs.topology.change_table import Effect
from reprise.spark_jobs.topology.changes import (
    Change,
    changes,
    require_queries_alone,
    revision_of_settings,
    settings_of,
)
from reprise.spark_jobs.topology.graph_change import GraphChange

PATIENCE_S = 60.0
"""A driver takes settings between two jobs."""
LOOK_S = 0.3


@click.command("apply")
@topology_option
@sets_option
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder of a run on this machine."
)
@click.option("--dry-run", is_flag=True, help="Only say what would happen, as `reprise diff` does.")
@click.option(
    "--timeout",
    type=DURATION,
    default="10m",
    show_default=True,
    help="The longest time to wait for queries to come or go.",
)
def command(file: Path, sets: tuple[str, ...], out: Path, dry_run: bool, timeout: float) -> None:
    """Let a run on this machine go on with the changed file.

    Priorities, declared load, planner, scope, checkpoint interval and what else takes effect in place do so at once: driver
    and executors stay the same processes.

    Queries come and go, too: operators that nobody who stays reads from are added or removed. For that the stream drains:
    it stops behind a checkpoint, driver and coordinator are started anew there, and all queries stand still for as long as
    that takes, which is said at the end. What stays loses no batch and shows none twice; what comes begins with nothing,
    and shows the batches behind that checkpoint; what it would have shown of earlier ones is not made.

    All or nothing: where a field takes another driver, a drain, or another topology, nothing is changed, and each such field
    is named with the reason. On Kubernetes `kubectl apply` does this.

    \b
    Examples:
      reprise apply -f flights.yaml --out out/eight
      reprise apply -f flights.yaml --out out/eight --set recovery.algorithm=ilp --dry-run
      reprise apply -f flights-with-delays.yaml --out out/eight --timeout 5m
    """
    wanted = load(file, overrides=parse_sets(sets))
    with of_run(out) as target:
        found = changes(target.resource(), wanted)
        if any(change.effect is Effect.QUERIES for change in found):
            queries = require_queries_alone(target.resource(), wanted)
            show(found)
            if not dry_run:
                _change_queries(target, out, wanted, queries, timeout)
            return
        raise_all(_refused(change) for change in found if not change.effect.in_place)
        if any(change.path == "spec.paused" for change in found):
            _require_no_other_wish(target, wanted)
        show(found)
        if dry_run:
            return
        if found:
            target.apply(wanted)
        _wait(target, wanted)


def _require_no_other_wish(target: ZooKeeperTarget, wanted: StreamTopology) -> None:
    """SpecError where the file would be followed and the run not do as it says."""
    asked = target.observation().paused
    if asked is not None and asked != wanted.paused:
        said, other = ("pause", "resume") if asked else ("resume", "pause")
        raise SpecError(
            "spec.paused",
            f"`reprise {said}` stands above the file: use `reprise {other}`; nothing was changed",
        )


def _refused(change: Change) -> SpecError:
    return SpecError(
        change.path,
        f"takes effect {change.effect.value}, not in place: {change.reason}; nothing was changed (`reprise diff` says more)",
    )


def _wait(target: ZooKeeperTarget, wanted: StreamTopology) -> None:
    """End when the driver says that it follows these settings."""
    revision, until = revision_of_settings(settings_of(wanted)), PLATFORM.elapsed() + PATIENCE_S
    while PLATFORM.elapsed() < until:
        progress = target.observation().progress
        if progress is not None and progress.settings == revision:
            click.echo(f"the driver follows settings {revision}")
            return
        if target.overtaken():
            exits.fail(
                f"settings {revision} are not on record any more: somebody else has changed them meanwhile",
                exits.NO,
            )
        PLATFORM.sleep(LOOK_S)
    exits.fail(
        f"settings {revision} are on record, and no driver has said within {PATIENCE_S:.0f} s that it follows them",
        exits.TIMED_OUT,
    )


def _change_queries(
    target: ZooKeeperTarget, out: Path, wanted: StreamTopology, queries: GraphChange, timeout: float
) -> None:
    """Ask for it, and end when batches go on."""
    wish = TopologyWish(uuid4().hex, to_json(wanted))
    if not target.change_queries(wish):
        exits.fail("another change of queries is under way: wait for it, or see `reprise history`", exits.NO)
    click.echo(
        "the stream drains, and goes on with the changed queries, whether this command waits for that or not"
    )
    until = PLATFORM.elapsed() + timeout
    while PLATFORM.elapsed() < until:
        record = read_record(out)
        if record is None or not is_running(record):
            exits.fail("the run has ended, and the queries are those of before", exits.NOT_RUNNING)
        for action in record.get("actions", ()):
            if action.get("wish") == wish.id and action["action"] in (QUERIES_CHANGED, QUERIES_REFUSED):
                _tell(action, queries)
                return
        PLATFORM.sleep(LOOK_S)
    if target.take_back_queries():
        exits.fail(
            f"not done within {timeout:g} s, and taken back: the queries are those of before", exits.TIMED_OUT
        )
    exits.fail(f"not done within {timeout:g} s; it is being carried out", exits.TIMED_OUT)


def _tell(action: dict[str, Any], queries: GraphChange) -> None:
    if action["action"] == QUERIES_REFUSED:
        exits.fail(f"refused: {action['reason']}", exits.NO)
    at = action["position"]
    for name in queries.removed:
        click.echo(f"{name}: batch {at} was its last one")
    for name in queries.added:
        click.echo(f"{name}: begins with batch {at + 1}")
    click.echo(
        f"drained within {action['drain_s']:.1f} s; then all queries stood still for {action['paused_s']:.1f} s"
    )
