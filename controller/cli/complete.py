"""What a shell may complete beside names of commands, options and files: topologies, queries, incidents, nodes and planners.

Where neither a folder nor a file is named, topologies and their queries are those of the kubeconfig's cluster: one request
to its API server.

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
    if str(given["file"]) == "-":
        raise ValueError("what is on standard input is for the command")
    return expand(load_topology(given["file"], data=False))


def _is_local(given: dict[str, Any]) -> bool:
    return any(given.get(option) is not None for option in ("out", "zk", "root", "file"))


def _on_cluster(given: dict[str, Any]) -> dict[str, Any]:
    """The topologies of the namespace on Kubernetes, by name."""
    from reprise.controller.cli.target import Address
    from reprise.controller.cli.target_kubernetes import listed

    fields = ("namespace", "context", "kubeconfig")
    found = listed(Address(**{name: given.get(name) for name in fields}), everywhere=False)
    return {str(one["metadata"]["name"]): one for one in found}


@completer
def topologies(given: dict[str, Any]) -> Iterable[str]:
    """The topologies of the namespace on Kubernetes; none where another way to name one is taken."""
    return () if _is_local(given) else _on_cluster(given)


@completer
def queries(given: dict[str, Any]) -> Iterable[str]:
    """The queries of the topology that --out or -f names, or the word before on Kubernetes.  Without a word before there the
    topologies, and where there is one alone its queries, as its name can be left out."""
    if _is_local(given):
        local: Iterable[str] = _topology(given).queries
        return local
    from reprise.spark_jobs.topology import expand, from_object

    there, before = _on_cluster(given), tuple(given.get("words") or ())
    named = there.get(before[0]) if before else next(iter(there.values())) if len(there) == 1 else None
    found = [] if named is None else list(expand(from_object(dict(named))).queries)
    return found if before else [*there, *found]


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
