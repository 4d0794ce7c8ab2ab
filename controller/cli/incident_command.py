"""`reprise incident`: post-mortems."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import click

from reprise.controller.analysis.postmortem.story import make_story
from reprise.controller.cli.complete import incidents
from reprise.controller.cli.postmortem_export import export
from reprise.controller.cli.recorded import heartbeats, named, recorded
from reprise.controller.cli.render import plain_console
from reprise.controller.cli.target import Address, target_options
from reprise.controller.local.report.layout import is_running, read_record
from reprise.controller.status import document
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import Incident
from reprise.spark_jobs.topology import Topology, expand


@click.group("incident")
def command() -> None:
    """Post-mortem of an incident as Markdown with pictures.

    \b
    Example:
      reprise incident export --out out/eight
    """


@command.command("export")
@click.argument("incident", required=False, metavar="[ID]", shell_complete=incidents)
@click.option("--name", help="Of the topology, on Kubernetes.")
@target_options
@click.option(
    "--to", type=click.Path(path_type=Path), help="Folder; by default postmortem-ID here, or below --out."
)
def export_command(address: Address, incident: str | None, to: Path | None) -> None:
    """Write the post-mortem of an incident (by default the newest): time line, downtime by query, plans with reasons, what a
    blocking recovery would have cost, what one more node would have bought, and pictures.

    \b
    Examples:
      reprise incident export --out out/eight
      reprise incident export inc-000012 --out out/eight --to postmortems/tuesday
      reprise incident export --name flights -n streams
    """
    topology, seen = _records(address)
    chosen = _chosen(seen.incidents, incident)
    arrived = heartbeats(address.out) if address.out else []
    story = make_story(topology, chosen, list(seen.plans.values()), seen.time, arrived)
    folder = to or (address.out or Path()) / f"postmortem-{chosen.id}"
    written = export(story, document(topology, seen).availability.points, folder)
    console = plain_console()
    for path in written:
        console.print(str(path), highlight=False, soft_wrap=True)


def _records(address: Address) -> tuple[Topology, Observation]:
    """Read the records of a run that has ended from its folder, else those that stand in ZooKeeper."""
    if address.out is not None and not is_running(read_record(address.out) or {}):
        topology, incidents, plans = recorded(address.out)
        ended = max((i.closed_at or i.opened_at for i in incidents), default=time.time())
        with named(address.out, "ended"):
            moment = float((read_record(address.out) or {}).get("ended", ended))
            if not math.isfinite(moment):
                raise ValueError("not a time")
        closed = {incident.id: incident for incident in incidents}
        return topology, Observation(moment, closed=closed, plans={plan.id: plan for plan in plans})
    with address.open() as target:
        return expand(target.resource()), target.observation()


def _chosen(incidents: Sequence[Incident], wanted: str | None) -> Incident:
    if not incidents:
        raise click.UsageError("no incident is on record there")
    if wanted is None:
        return incidents[-1]
    found = next((incident for incident in incidents if incident.id == wanted), None)
    if found is None:
        known = ", ".join(incident.id for incident in incidents)
        raise click.BadParameter(f"no incident {wanted!r}; there are {known}", param_hint="ID")
    return found
