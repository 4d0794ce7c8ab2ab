"""`reprise queries`: every query of a topology."""

from __future__ import annotations

import click

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.render import for_programs, output_option, plain_console
from reprise.controller.cli.status_page import by_need, query_table
from reprise.controller.cli.target import Address, target_options
from reprise.controller.status.query_state import Status


@click.command("queries")
@name_argument
@target_options
@click.option("--state", type=click.Choice([status.value for status in Status]), help="Only these.")
@output_option
def command(address: Address, state: str | None, output: str) -> None:
    """All queries with priority, state, lag and reason; what is down comes first.

    \b
    Examples:
      reprise queries --out out/eight
      reprise queries --out out/eight --state waiting -o wide
      reprise queries flights -n streams -o yaml
    """
    with address.open() as target:
        document = target.document()
    found = [query for query in by_need(document.queries.items) if state in (None, query.state.value)]
    if not for_programs(found, output):
        console = plain_console(None if output == "table" else 240)
        console.print(query_table(found, document.time, output == "wide"))
