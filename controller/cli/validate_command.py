"""`reprise validate`: is this a topology?"""

from __future__ import annotations

from pathlib import Path

import click

from controller.cli.options import topology_option
from spark_jobs.topology import check, expand, load_topology


@click.command("validate")
@topology_option
def command(file: Path) -> None:
    """Check a topology file: fields, graph, classes and their parameters.

    \b
    Example:
      reprise validate -f examples/flights.yaml
    """
    resource = load_topology(file)
    topology = expand(resource)
    for warning in check(resource):
        click.echo(f"warning: {warning.field}: {warning.reason}", err=True)
    click.echo(f"{file}: valid; {len(topology.partitions)} partitions, {len(topology.queries)} queries")
