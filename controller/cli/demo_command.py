"""`reprise demo`: a large correlated failure, seen on this machine with what is installed."""

from __future__ import annotations

from pathlib import Path

import click

from reprise.controller.cli import exits
from reprise.controller.cli.carry_out import EXIT, carry_out
from reprise.controller.cli.compare_command import lines
from reprise.controller.cli.up_command import next_folder
from reprise.controller.cli.verify_command import verified
from reprise.controller.local.faults.faults import load_faults
from reprise.controller.local.run.config import RunConfig, load
from reprise.shipped import EXAMPLES
from reprise.spark_jobs.topology import expand

TOPOLOGY = EXAMPLES / "topology2.yaml"
FAULTS = EXAMPLES / "faults" / "eight-of-ten.yaml"


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run; by default reprise-demo/run-1, reprise-demo/run-2, ... in this folder.",
)
@click.option("--no-web", is_flag=True, help="Serve no page.")
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
def command(out: Path | None, no_web: bool, quiet: bool) -> None:
    """Fifteen queries on ten nodes of this machine; eight nodes are killed at once, and new ones come one by one.

    It takes some minutes and two cores. The queries come back one by one, those with the most priority for the room
    that is there first; a page shows it. At the end all outputs are computed again without faults and compared, byte by
    byte: nothing may be lost or doubled.

    \b
    Examples:
      reprise demo
      reprise demo --out /tmp/demo
    """
    resource = load(TOPOLOGY)
    out = out or next_folder(Path("reprise-demo"))
    faults = load_faults(FAULTS, resource.nodes.count, expand(resource))
    result = carry_out(RunConfig(resource=resource, out=out, faults=faults), None if no_web else 0, quiet)
    if not result.ok:
        raise SystemExit(EXIT[result.outcome])
    found = verified(out, resource)
    for line in lines(found):
        click.echo(line)
    click.echo(f"what happened: reprise history --out {out}, and {out / 'queries.svg'}")
    if not found.identical:
        raise SystemExit(exits.NO)
