"""What a shell may complete beside names of commands, options and files: queries, incidents, nodes and planners.

Each function gets what stands on the line before the cursor.  Invariant: whatever is wrong there, nothing is raised and
nothing is written: a shell shows no suggestion then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Finder = Callable[[dict[str, Any]], Iterable[str]]
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(find: Finder) -> Completer:
    """What click asks, from a function of the options that are given already."""

    @wraps(find)
    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        before, comma, last = begun.rpartition(",") if parameter.name in LISTS else ("", "", begun)
        try:
            names = sorted(find(context.params))
        except Exception:  # a file that is not there, or is not what it should be
            return []
        return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]

    return complete


LISTS = {"lose"}
"""Parameters that take several names with commas between."""


def _topology(given: dict[str, Any]) -> Any:
    from reprise.spark_jobs.topology import expand, from_json, load_topology

    if given.get("out") is not None:
        return expand(from_json((Path(given["out"]) / "topology.json").read_text(encoding="utf-8")))
    return expand(load_topology(given["file"], data=False))


@completer
def queries(given: dict[str, Any]) -> Iterable[str]:
    """The queries of the topology that --out or -f names."""
    found: Iterable[str] = _topology(given).queries
    return found


@completer
def incidents(given: dict[str, Any]) -> Iterable[str]:
    """The incidents in the folder that --out names."""
    plans = json.loads((Path(given["out"]) / "plans.json").read_text(encoding="utf-8"))
    return [str(incident["id"]) for incident in plans["incidents"]]


@completer
def nodes(given: dict[str, Any]) -> Iterable[str]:
    """The nodes with which the run that --out names began."""
    from reprise.spark_jobs.topology import from_json

    resource = from_json((Path(given["out"]) / "topology.json").read_text(encoding="utf-8"))
    return [f"n{number}" for number in range(1, resource.nodes.count + 1)]


@completer
def planners(given: dict[str, Any]) -> Iterable[str]:
    """The registered planners."""
    from reprise.algorithms import ALGORITHMS

    return ALGORITHMS
