"""`reprise graph`: a topology as a picture or as text."""

from __future__ import annotations

from pathlib import Path

import click

from reprise.controller.cli.graph_drawing import draw
from reprise.controller.cli.graph_text import as_text
from reprise.controller.cli.options import topology_option
from reprise.spark_jobs.topology import expand, load_topology


def _moved(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Say what `-o FILE` is called now; in every other command -o is the form of what is printed."""
    if value is not None:
        raise click.UsageError(
            f"a picture is drawn with --to {value}; -o is the form of printed output elsewhere"
        )


@click.command("graph")
@topology_option
@click.option(
    "--to", type=click.Path(path_type=Path), help="FILE.svg or FILE.png to draw; without it, text is printed."
)
@click.option("-o", "--output", hidden=True, expose_value=False, callback=_moved)
def command(file: Path, to: Path | None) -> None:
    """Draw a topology: operators, partitions, subscriptions, and its queries by priority.

    \b
    Examples:
      reprise graph -f examples/topology2.yaml
      reprise graph -f examples/flights.yaml --to flights.svg
    """
    topology = expand(load_topology(file, data=False))
    if to is None:
        click.echo(as_text(topology), nl=False)
        return
    if to.suffix not in (".svg", ".png"):
        raise click.BadParameter(f"{to.name} must end in .svg or .png", param_hint="--to")
    draw(topology, to)
    click.echo(f"{to} drawn")
