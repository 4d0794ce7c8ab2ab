"""`reprise approve`: let a proposed recovery plan be carried out."""

from __future__ import annotations

import click

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.target import Address, target_options
from reprise.controller.cli.target_kubernetes import cluster_target


@click.command("approve")
@name_argument
@target_options
@click.option(
    "--plan",
    metavar="NAME",
    help="The RecoveryPlan that was read; refused where another one is proposed now.",
)
def command(address: Address, plan: str | None) -> None:
    """Approve the plan that waits, in recommend mode (`recovery.mode: recommend`, or the operator's switch), on Kubernetes.

    The RecoveryPlan gets the annotation `reprise.dev/approved=true`. A plan that is made later, as another node was lost or
    came, waits for an approval of its own.

    \b
    Examples:
      reprise approve flights -n streams
      kubectl reprise approve flights -n streams --plan flights-inc-000007-p1-3f9a
    """
    with cluster_target(address, "plans of a run on this machine are carried out at once") as target:
        click.echo(target.approve(plan))
