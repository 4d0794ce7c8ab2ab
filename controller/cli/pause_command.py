"""`reprise pause` and `reprise resume`: whether a topology reads further batches."""

from __future__ import annotations

import click

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.target import Address, target_options


@click.command("pause")
@name_argument
@target_options
def command(address: Address) -> None:
    """Stop reading further batches; state, positions and recovery stay as they are.

    On Kubernetes `spec.paused` is set, elsewhere the topology's `commands/paused` in ZooKeeper. A paused topology takes no
    checkpoint, so an incident stays open until it goes on.

    \b
    Examples:
      reprise pause --out out/eight
      reprise pause flights -n streams
    """
    _ask(address, True)


@click.command("resume")
@name_argument
@target_options
def resume(address: Address) -> None:
    """Go on after `reprise pause`.

    \b
    Examples:
      reprise resume --out out/eight
      reprise resume flights -n streams
    """
    _ask(address, False)


def _ask(address: Address, paused: bool) -> None:
    with address.open() as target:
        click.echo(target.pause(paused))
