"""What a changed topology would do, as people read it: the changes by their effect, with the reason of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from reprise.controller.plural import counted
from reprise.spark_jobs.topology.change_table import Effect
from reprise.spark_jobs.topology.changes import Change

LONGEST = 60
"""Characters of a value that are shown."""
GIVEN, RUNNING = "given", "running"


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change as programs read it."""

    path: str
    effect: str
    before: Any
    after: Any
    reason: str
    before_is: str = GIVEN
    """Of what `before` is the value: GIVEN, or RUNNING where a driver on Kubernetes runs something else than that."""


def rows_of(found: Sequence[Change], before_is: str = GIVEN) -> list[ChangeRow]:
    """The changes for programs."""
    return [ChangeRow(c.path, c.effect.value, c.before, c.after, c.reason, before_is) for c in found]


def show(found: Sequence[Change]) -> None:
    """Print them, what takes effect soonest first."""
    if not found:
        click.echo("nothing changes")
    for effect in Effect:
        some = [change for change in found if change.effect is effect]
        if some:
            click.echo(f"{effect.value}: {counted(len(some), 'change', 'changes')}")
        for change in some:
            click.echo(f"  {change.path}: {_value(change.before)} -> {_value(change.after)}")
            click.echo(f"      {change.reason}")


def _value(value: Any) -> str:
    if value is None:
        return "(not given)"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
