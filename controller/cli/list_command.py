"""`reprise list`: the topologies of a namespace, or of all, on Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from reprise.controller.cli.render import for_programs, output_option, plain_console, plain_table
from reprise.controller.cli.target import Address
from reprise.controller.cli.target_kubernetes import listed

PIPED_WIDTH = 400
"""Of what goes to a file or a pipe, where names are not cut."""


@click.command("list")
@click.option("-n", "--namespace", help="Else that of the kubeconfig's context.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@click.option("--context", help="Of the kubeconfig, instead of the current one.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Instead of KUBECONFIG and ~/.kube/config."
)
@output_option
def command(
    namespace: str | None, all_namespaces: bool, context: str | None, kubeconfig: Path | None, output: str
) -> None:
    """The topologies on Kubernetes by their resources: ready or why not, queries, nodes, and the open incident.

    \b
    Examples:
      kubectl reprise list -n streams
      reprise list -A -o json | jq '.[] | select(.ready != "True") | .name'
    """
    if all_namespaces and namespace is not None:
        raise click.UsageError("-n and -A are two ways: give one of them")
    address = Address(namespace=namespace, context=context, kubeconfig=kubeconfig)
    rows = [row(topology) for topology in listed(address, all_namespaces)]
    if not for_programs(rows, output):
        wide = None if sys.stdout.isatty() else PIPED_WIDTH
        plain_console(wide).print(_table(rows) if rows else "no topologies")


def row(topology: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of one, by its resource."""
    meta, status = topology["metadata"], topology.get("status") or {}
    conditions: list[Mapping[str, Any]] = [
        c for c in status.get("conditions") or () if c.get("type") == "Ready"
    ]
    ready = conditions[0] if conditions else {}
    return {
        "namespace": meta["namespace"],
        "name": meta["name"],
        "ready": ready.get("status", "Unknown"),
        "reason": ready.get("reason", "NotLookedAtYet"),
        "queries": (status.get("queries") or {}).get("summary", "-"),
        "nodes": (status.get("nodes") or {}).get("summary", "-"),
        "incident": status.get("incident") or "-",
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table()
    for name in rows[0]:
        table.add_column(name, no_wrap=True)
    for one in rows:
        table.add_row(*map(str, one.values()))
    return table
