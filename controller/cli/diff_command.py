"""`reprise diff`: what applying a changed topology file would do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reprise.controller.cli import exits
from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.change_page import RUNNING, rows_of, show
from reprise.controller.cli.options import parse_sets, sets_option, topology_option
from reprise.controller.cli.render import for_programs, output_option
from reprise.controller.cli.target import Address
from reprise.controller.cli.target_kubernetes import KubernetesTarget
from reprise.controller.local.run.config import load
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, load_topology
from reprise.spark_jobs.topology.change_table import Effect
from reprise.spark_jobs.topology.changes import Change, changes, require_able_to_change, require_queries_alone

_OF_KUBECTL = (["metadata", "namespace"], ["metadata", "annotations"])


@click.command("diff")
@name_argument
@topology_option
@sets_option
@click.option("--against", type=click.Path(path_type=Path), help="A file with the topology as it is now.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of a run on this machine.")
@click.option("-n", "--namespace", help="On Kubernetes; else that of the kubeconfig's context.")
@click.option("--context", help="Of the kubeconfig, instead of the current one.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Instead of KUBECONFIG and ~/.kube/config."
)
@output_option
def command(
    file: Path, sets: tuple[str, ...], against: Path | None, output: str, **where: Any
) -> None:  # fmt: skip
    """What would happen if the changed file were applied: which fields take effect at once, from the next checkpoint on,
    with a new driver, after a drain, or never. Nothing is touched.

    It is compared with the topology that runs in DIR, the newest resource NAME on Kubernetes, or a file. Where the driver
    of NAME still runs another spec than that, as while it drains or where the newest one was refused, it is compared with
    what runs as well. The exit code is 1 where a change would be refused.

    \b
    Examples:
      reprise diff -f flights.yaml --out out/eight
      reprise diff -f flights.yaml --against flights-as-it-was.yaml
      reprise diff flights -n streams -f flights.yaml -o json
    """
    wanted = load(file, overrides=parse_sets(sets))
    address = Address(**where)
    now, running = _now(against, address)
    found, more = _changes(now, wanted, address), list[Change]()
    if running is not None:
        more = _not_in_place(_changes(running, wanted, address))
    if not for_programs([*rows_of(found), *rows_of(more, RUNNING)], output):
        show(found)
        if running is not None:
            click.echo(
                f"compared with what its driver still runs, which is not the newest spec of {now.name}:"
            )
            show(more)
    refused = _refused(running or now, wanted, alone=address.out is not None)
    for mistake in refused:
        click.echo(f"refused: {mistake}", err=True)
    if refused or any(change.effect is Effect.NEVER for change in (*found, *more)):
        raise SystemExit(exits.NO)


def _changes(before: StreamTopology, wanted: StreamTopology, address: Address) -> list[Change]:
    """What differs, without what `kubectl apply` adds: where the resource goes, and what it was given."""
    found = changes(before, wanted)
    if address == Address() or not address.on_cluster:
        return found
    return [change for change in found if change.path.split(".")[:2] not in _OF_KUBECTL]


def _not_in_place(found: Sequence[Change]) -> list[Change]:
    """Those that a driver has to be started for: it follows the others of the newest spec."""
    return [change for change in found if not change.effect.in_place]


def _refused(now: StreamTopology, wanted: StreamTopology, alone: bool) -> tuple[SpecError, ...]:
    """Why queries do not come and go.  `alone`: in a run on this machine, where they do so only with what takes effect in
    place."""
    if not any(change.effect is Effect.QUERIES for change in changes(now, wanted)):
        return ()
    try:
        (require_queries_alone if alone else require_able_to_change)(now, wanted)
    except SpecError as error:
        return error.all
    return ()


def _now(against: Path | None, address: Address) -> tuple[StreamTopology, StreamTopology | None]:
    """The topology as it was given last; and what runs, where that has other values of what a driver is started with."""
    named = address != Address()
    if against is not None and named:
        raise click.UsageError("--against FILE, --out DIR and a name on Kubernetes are three ways: give one")
    if against is not None:
        return load_topology(against, data=False), None
    if not named:
        raise click.UsageError("compared with what? give --against FILE, --out DIR, or NAME -n NAMESPACE")
    with address.open() as target:
        now = target.resource()
        running = _running(target) if isinstance(target, KubernetesTarget) else None
    differs = running is not None and _not_in_place(_changes(running, now, address))
    return now, running if differs else None


def _running(target: KubernetesTarget) -> StreamTopology | None:
    """What its driver runs; None where there is none, or nobody can tell, which is said."""
    try:
        return target.started_with()
    except exits.NotRunningError as error:
        click.echo(f"compared with the resource alone: {error}", err=True)
        return None
