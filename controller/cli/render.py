"""One value in the form that was asked for: for people, or as JSON or YAML for programs."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from reprise.controller.status import plain

FORMS = ("table", "wide", "json", "yaml")
output_option = click.option(
    "-o", "--output", type=click.Choice(FORMS), default="table", show_default=True, help="What is printed."
)


def for_programs(value: Any, form: str) -> bool:
    """Print `value` where a program asked; whether that was so."""
    if form == "json":
        click.echo(json.dumps(plain(value), indent=1))
    elif form == "yaml":
        click.echo(yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True), nl=False)
    return form in ("json", "yaml")


def how_found(algorithm: str | None) -> str:
    """How a plan was found, for people; names of planners are those of `--algorithm`."""
    words = {"reductions": "no search was needed", "frontier": "solved exactly, part by part"}
    return words.get(algorithm or "", f"by the planner {algorithm or 'of an earlier version'}")


def plain_console(width: int | None = None) -> Console:
    """A terminal that shows texts as they are.  What code of users raises, and names of folders, may hold what rich takes
    for its own marks: `[red]` would be gone, `:x:` a picture, and `[/x]` an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 lacks some marks
    return Console(markup=False, emoji=False, width=width)


def plain_table(**more: Any) -> Table:
    """Without lines, as every table here is.  `more`: further arguments of `Table`."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), **more)


def span(seconds: float | None) -> str:
    """`1m20s`: short, for tables."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if abs(seconds) < 10:
        return f"{seconds:.1f}s"
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m"
