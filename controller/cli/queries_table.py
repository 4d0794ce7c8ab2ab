"""Queries in a terminal, for every page that lists them: one order of columns, one colour a state, its word beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from reprise.controller.cli.render import plain_table
from reprise.controller.status.query_state import Status

STYLES = {Status.AVAILABLE: "green", Status.RECOVERING: "yellow", Status.WAITING: "bold red"}
BY_NEED = (Status.WAITING, Status.RECOVERING, Status.AVAILABLE)


def empty_table(ids: Iterable[str], fold: bool, more: Sequence[str] = ()) -> Table:
    """Columns for query, priority, lag, state, `more` and why.  `fold`: long reasons take several lines and are not cut."""
    table = plain_table(expand=not fold)
    table.add_column("query", no_wrap=True, min_width=max((len(name) for name in ids), default=5))
    for name, width in (("priority", 8), ("lag", 4)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("state", no_wrap=True, min_width=10)
    for name in more:
        table.add_column(name, justify="right" if name == "down for" else "left", no_wrap=True)
    table.add_column(
        "why", no_wrap=not fold, overflow="fold" if fold else "ellipsis", ratio=None if fold else 1
    )
    return table


def state_text(state: Status) -> Text:
    """The word of a state in its colour."""
    return Text(state.value, style=STYLES[state])


def rest_line(states: Sequence[Status]) -> Text:
    """One line that counts the queries for which there is no room."""
    counts = Counter(states)
    text = ", ".join(f"{counts[state]} {state.value}" for state in BY_NEED if counts[state])
    return Text(f"and {len(states)} more: {text}", style="dim")
