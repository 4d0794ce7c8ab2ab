"""How a topology stands by its Kubernetes resources alone: what a laptop sees where the controller's page does not answer.

Resources are bounded summaries.  What they do not hold (partitions, all queries, the curve) is not shown, and the page says
so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from reprise.controller.cli.render import plain_table
from reprise.spark_jobs.topology.promise import PERHAPS, Guarantee


def resources_page(found: Mapping[str, Any], why: str) -> RenderableType:
    """Conditions, counts, the queries that wait, the open incident and its newest plan."""
    topology = found["topology"]
    meta, status = topology["metadata"], topology.get("status") or {}
    parts: list[RenderableType] = [
        Text(f"{meta['namespace']}/{meta['name']}  batch {status.get('position', '-')}", style="bold"),
        _pairs(status),
    ]
    incident = next((i for i in found["incidents"] if i["metadata"]["name"] == status.get("incident")), None)
    if incident is not None:
        parts.append(incident_line(incident))
    plans = [
        p for p in found["plans"] if incident and p["spec"].get("incident") == incident["metadata"]["name"]
    ]
    if plans:
        parts.append(plan_line(plans[0]))
    parts += [Text(), _conditions(status), *_waiting(status)]
    parts.append(Text(f"from the resources alone: {why}", style="dim"))
    return Group(*parts)


def incident_line(incident: Mapping[str, Any]) -> Text:
    status = incident.get("status") or {}
    queries = status.get("queries", {})
    return Text(
        f"incident   {incident['metadata']['name']} {status.get('kind', '?')}, {status.get('phase', '?')}, since "
        f"{incident['spec'].get('openedAt', '?')}; queries restored {queries.get('summary', '?')}",
        style="bold yellow",
    )


def plan_line(plan: Mapping[str, Any]) -> Text:
    spec = plan["spec"]
    quality = "optimal" if spec.get("optimal") else f"of at most {spec.get('bound')}"
    return Text(
        f"plan       {plan['metadata']['name']} {spec.get('trigger')}: {spec.get('partitions')} partitions, queries "
        f"{spec.get('summary')}, worth {spec.get('value')} ({quality}); {plan.get('status', {}).get('state', '?')}"
    )


def plan_page(plan: Mapping[str, Any]) -> RenderableType:
    """A RecoveryPlan with its reasons."""
    spec = plan["spec"]
    table = plain_table()
    for name in ("query", "priority", "", "why"):
        table.add_column(name)
    for entry in spec.get("chosen") or []:
        cost = f"takes {entry.get('costMilliCpu')}m for {entry.get('partitions')} partitions"
        table.add_row(entry["query"], str(entry.get("priority")), Text("comes back", style="green"), cost)
    for entry in spec.get("leftOut") or []:
        table.add_row(
            entry["query"],
            str(entry.get("priority")),
            Text("waits", style="bold red"),
            Text(entry.get("reason", "")),
        )
    return Group(plan_line(plan), Text(str(spec.get("why", "")), style="dim"), table)


def _pairs(status: Mapping[str, Any]) -> Text:
    queries, nodes = status.get("queries") or {}, status.get("nodes") or {}
    text = Text("queries    ", style="bold")
    text.append(f"{queries.get('summary', '?')} available", style="green")
    text.append(
        f", {queries.get('recovering', 0)} recovering, {queries.get('waiting', 0)} waiting; by priority "
        f"{queries.get('value', '?')}\n",
        style="default",
    )
    text.append("nodes      ", style="bold")
    text.append(
        f"{nodes.get('summary', '?')} ready, {nodes.get('lost', 0)} lost, {nodes.get('pending', 0)} pending"
        f"   checkpoint {status.get('checkpoint', {}).get('position', '?')}",
        style="default",
    )
    every = status.get("outputs") or []
    less = [one for one in every if one.get("guarantee") != Guarantee.PRECISE or one.get("givenUp")]
    if less:
        text.append("\noutputs    ", style="bold")
        text.append(", ".join(_promise(one) for one in less), style="default")
    return text


def _promise(output: Mapping[str, Any]) -> str:
    said = output.get("guarantee") or PERHAPS
    by = f"by {', '.join(output['limitedBy'])}" if output.get("limitedBy") else ""
    why = "; ".join(filter(None, (by, *output.get("givenUp", ()))))
    return f"{output['operator']} {said} ({why})" if why else f"{output['operator']} {said}"


def _conditions(status: Mapping[str, Any]) -> Text:
    text = Text()
    for condition in status.get("conditions") or []:
        style = {"True": "green", "False": "default"}.get(condition["status"], "bold yellow")
        text.append(f"{condition['type']}={condition['status']} ", style=style)
        text.append(f"({condition.get('reason', '')}) ", style="dim")
    return text


def _waiting(status: Mapping[str, Any]) -> list[RenderableType]:
    waiting = status.get("waiting") or []
    if not waiting:
        return []
    table = plain_table()
    for name in ("query", "priority", "why it is not available"):
        table.add_column(name)
    for entry in waiting:
        table.add_row(entry["query"], str(entry.get("priority", "")), Text(entry.get("reason", "")))
    return [Text(), table]
