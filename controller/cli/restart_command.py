"""`reprise restart`: a topology's driver ends, and the operator starts another."""

from __future__ import annotations

import click

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.target import Address, target_options
from reprise.controller.cli.target_kubernetes import cluster_target


@click.command("restart")
@name_argument
@target_options
def command(address: Address) -> None:
    """End the driver's pod, on Kubernetes; the operator starts another, with new executors.

    The new one begins at the newest checkpoint: nothing is lost and no row is shown twice, and every query stands still for
    the time of a start. A driver that is silent or hangs is ended by the operator itself.

    \b
    Examples:
      reprise restart flights -n streams
    """
    with cluster_target(address, "a run on this machine starts its driver anew by itself") as target:
        click.echo(target.restart())
