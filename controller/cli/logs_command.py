"""`reprise logs`: what the pods of a topology have logged last, on Kubernetes."""

from __future__ import annotations

import re

import click

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.exits import NotRunningError
from reprise.controller.cli.target import Address, target_options
from reprise.controller.cli.target_kubernetes import cluster_target

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but line ends and tabs.  Rows and messages of users' code stand in logs, and a terminal obeys what is in them."""


@click.command("logs")
@name_argument
@target_options
@click.option(
    "--role", type=click.Choice(("driver", "executor")), default="driver", show_default=True, help="Whose."
)
@click.option(
    "--tail", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Lines of each pod."
)
def command(address: Address, role: str, tail: int) -> None:
    """The last lines of the driver, or of each executor, on Kubernetes; `kubectl logs -f` follows them.

    \b
    Examples:
      kubectl reprise logs flights -n streams
      reprise logs flights -n streams --role executor --tail 20
    """
    with cluster_target(address, "logs of a run on this machine are in DIR/logs") as target:
        found = list(target.logs(role, tail))
        for pod, text in found:
            click.echo(f"==> {pod} <==")
            click.echo(_harmless(text.rstrip("\n")))
        if not found:
            raise NotRunningError(f"{target.namespace}/{target.name} has no {role}")


def _harmless(text: str) -> str:
    """Write out characters that a terminal would obey, as `\\x1b`."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
