"""`reprise history`: the story of a topology: of a run that has ended from its report, else from its records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.render import for_programs, output_option, plain_console, plain_table, span
from reprise.controller.cli.resources_page import incident_line
from reprise.controller.cli.target import Address, target_options
from reprise.controller.cli.target_kubernetes import PageError
from reprise.controller.errors import ReportError
from reprise.controller.local.report.layout import is_running, read_record
from reprise.controller.status.model import IncidentView


@click.command("history")
@name_argument
@target_options
@output_option
@click.option("--plans", is_flag=True, help="Also why each plan left queries out.")
def command(address: Address, output: str, plans: bool) -> None:
    """What happened: faults, detection, plans, arrivals, and when each query was lost and back.

    Of a run that has ended, its whole report; of a topology that runs, the open incident and the one before.

    \b
    Examples:
      reprise history --out out/eight
      reprise history --out out/eight --plans
      reprise history --out out/eight -o json | jq '.incidents[0].queries'
      reprise history flights -n streams
    """
    if address.out is not None and not is_running(read_record(address.out) or {}):
        report = read_report(address.out)
        if not for_programs(report, output):
            try:
                _print_report(plain_console(), report, plans)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ReportError(f"{address.out / 'incident.json'}: not a report: {error!r}") from error
        return
    with address.open() as target:
        try:
            document = target.document()
        except PageError as error:
            found = (target.resources() or {}).get("incidents", [])
            if not for_programs(found, output):
                plain_console().print(Group(*map(resource_history, found), Text(str(error), style="dim")))
            return
    incidents = [i for i in (document.last_incident, document.incident) if i is not None]
    if not for_programs(incidents, output):
        console = plain_console()
        for incident in incidents:
            console.print(incident_history(incident, plans))
        if not incidents:
            console.print("no incident is on record")


def _print_report(console: Console, report: dict[str, Any], plans: bool) -> None:
    head = f"{report['topology']}, {report['strategy']} recovery: {report['outcome']}"
    console.print(head, style="bold", highlight=False)
    for line in report["timeline"]:
        console.print(
            f"{line['elapsed']:8.2f} s  {line['what']}  {line['detail']}", highlight=False, soft_wrap=True
        )
    for incident in report["incidents"]:
        console.print()
        console.print(queries_table(incident, report.get("queries", {})))
        if plans:
            _left_out(console, incident)
    if "lost_s" in report and report["failure"] is not None:
        lost = f"availability lost by what was written, weighted by priority: {report['lost_s']:.1f} s of all queries"
        text = f"{lost}; {_criterion(report['criterion'])}"
        console.print(f"\n{text}", highlight=False, soft_wrap=True)


def incident_history(incident: IncidentView, plans: bool) -> RenderableType:
    """Its time line, seconds since the detection, and its queries."""
    state = (
        "open"
        if incident.closed_at is None
        else f"closed after {span(incident.closed_at - incident.opened_at)}"
    )
    parts: list[RenderableType] = [Text(f"{incident.id} {incident.kind}, {state}", style="bold")]
    for event in incident.events:
        parts.append(Text(f"{event.time - incident.opened_at:8.2f} s  {event.name}  {event.detail}".rstrip()))
    table = plain_table()
    for name in ("query", "priority", "lost at", "restored after", "downtime", "relapses"):
        table.add_column(name, justify="left" if name == "query" else "right")
    for query in incident.queries:
        restored = None if query.restored_at is None else query.restored_at - query.lost_at
        lost = span(query.lost_at - incident.opened_at)
        back = f"{'' if query.measured else 'at least '}{span(query.down_s)}"
        table.add_row(query.query, str(query.priority), lost, span(restored), back, str(query.relapses))
    parts += [Text(), table, Text(incident.recovery), Text()]
    for plan in incident.plans if plans else ():
        parts.append(Text(f"{plan.id}  {plan.summary}", style="bold"))
        parts += [Text(f"    {entry.query}: {entry.reason}") for entry in plan.left_out]
    return Group(*parts)


def resource_history(incident: dict[str, Any]) -> RenderableType:
    """The time line that an Incident object holds."""
    lines = [
        Text(f"{event.get('time', '')}  {event.get('name', '')}  {event.get('detail', '')}".rstrip())
        for event in (incident.get("status") or {}).get("timeline") or []
    ]
    return Group(incident_line(incident), *lines, Text())


def read_report(out: Path) -> dict[str, Any]:
    """Read incident.json of a run folder; ReportError when there is none, or it is damaged."""
    path = out / "incident.json"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(f"{out}: no finished run there (no incident.json)") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not a report: {error}") from error
    if not isinstance(report, dict) or not {"topology", "timeline", "incidents"} <= report.keys():
        raise ReportError(f"{path}: not a report: it needs topology, timeline and incidents")
    return report


def queries_table(incident: dict[str, Any], measured: dict[str, Any]) -> Table:
    """Lost, restored and back by the incident's record, in seconds after the loss; and, by what was written and in seconds
    after the first fault of the run, when the output was normal again."""
    title = f"{incident['id']} {incident['kind']}, recovered from checkpoint {incident['checkpoint']}"
    table = plain_table(title=title, title_justify="left")
    table.add_column("query", min_width=max(map(len, incident["queries"]), default=5))
    for name in (
        "priority",
        "lost at",
        "restored after",
        "downtime",
        "relapses",
        "output normal after fault",
    ):
        table.add_column(name, justify="right")
    for name, query in incident["queries"].items():
        table.add_row(
            name,
            str(query["priority"]),
            _seconds(query["lost"]),
            _seconds(query["restored_after_s"]),
            _back(query),
            str(query.get("relapses", 0)),
            _seconds(measured.get(name, {}).get("available_again_s")),
        )
    return table


def _left_out(console: Console, incident: dict[str, Any]) -> None:
    for plan in incident["plans"]:
        console.print(f"{plan['id']}  {plan['summary']}", style="bold", highlight=False, soft_wrap=True)
        for query, reason in plan["left_out"].items():
            console.print(f"    {query}: {reason}", highlight=False, soft_wrap=True)


def _back(query: dict[str, Any]) -> str:
    """How long it was down; `-` in a report of the version before, which did not say how long at least."""
    at_least = query.get("at_least_s")
    return _seconds(query["recovery_s"]) if at_least is None else f"at least {at_least:.1f} s"


def _criterion(found: dict[str, Any]) -> str:
    return (
        f"a query counts as available while the mean latency of its output over {found['window_s']:g} s is below"
        f" {found['theta']:g} times the usual plus {found['tolerance_s']:g} s"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
