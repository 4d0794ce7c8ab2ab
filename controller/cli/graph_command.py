"""`reprise graph`: a topology as a picture or as text."""

from __future__ import annotations

from pathlib import Path

import click

from reprise.controller.cli.graph_drawing import draw
from reprise.controller.cli.graph_text import as_text
from reprise.controller.cli.options import topology_option
from reprise.spark_jobs.topology import expand, load_topology


@click.command("graph")
@topology_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="FILE.svg or FILE.png; without it, text."
)
def command(file: Path, output: Path | None) -> None:
    """Draw a topology: operators, partitions, subscriptions, and its queries by priority.

    \b
    Examples:
      reprise graph -f examples/topology2.yaml
      reprise graph -f examples/flights.yaml -o flights.svg
    """
    topology = expand(load_topology(file, data=False))
    if output is None:
        click.echo(as_text(topology), nl=False)
        return
    if output.suffix not in (".svg", ".png"):
        raise click.BadParameter(f"{output.name} must end in .svg or .png", param_hint="--output")
    draw(topology, output)
    click.echo(f"{output} drawn")
