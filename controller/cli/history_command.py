"""`reprise history`: the story of a run, from its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from controller.cli.options import out_option
from controller.report.errors import ReportError


@click.command("history")
@out_option
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True)
@click.option("--plans", is_flag=True, help="Also why each plan left queries out.")
def command(out: Path, output: str, plans: bool) -> None:
    """What happened in a run: faults, detection, plans, arrivals, and when each query was lost and back.

    \b
    Examples:
      reprise history --out out/eight
      reprise history --out out/eight --plans
      reprise history --out out/eight -o json | jq '.incidents[0].queries'
    """
    report = read_report(out)
    if output == "json":
        click.echo(json.dumps(report, indent=1))
        return
    console = Console()
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
        text = f"availability lost, weighted by priority: {report['lost_s']:.1f} s; {_criterion(report['criterion'])}"
        console.print(f"\n{text}", highlight=False, soft_wrap=True)


def read_report(out: Path) -> dict[str, Any]:
    """incident.json of a run folder; ReportError when there is none, or it is damaged."""
    path = out / "incident.json"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(f"{out}: no finished run there (no incident.json)") from None
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: not a report: {error}") from error
    if not isinstance(report, dict) or not {"topology", "timeline", "incidents"} <= report.keys():
        raise ReportError(f"{path}: not a report: it needs topology, timeline and incidents")
    return report


def queries_table(incident: dict[str, Any], measured: dict[str, Any]) -> Table:
    """Lost, restored and caught up, in seconds after the loss; and when the output itself was normal again."""
    title = f"{incident['id']} {incident['kind']}, recovered from checkpoint {incident['checkpoint']}"
    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )
    table.add_column("query", min_width=max(map(len, incident["queries"]), default=5))
    for name in ("priority", "lost at", "restored after", "caught up after", "output normal after"):
        table.add_column(name, justify="right")
    for name, query in incident["queries"].items():
        table.add_row(
            name,
            str(query["priority"]),
            _seconds(query["lost"]),
            _seconds(query["restored_after_s"]),
            _seconds(query["recovery_s"]),
            _seconds(measured.get(name, {}).get("available_again_s")),
        )
    return table


def _left_out(console: Console, incident: dict[str, Any]) -> None:
    for plan in incident["plans"]:
        console.print(f"{plan['id']}  {plan['summary']}", style="bold", highlight=False, soft_wrap=True)
        for query, reason in plan["left_out"].items():
            console.print(f"    {query}: {reason}", highlight=False, soft_wrap=True)


def _criterion(found: dict[str, Any]) -> str:
    return (
        f"available: mean latency over {found['window_s']:g} s below {found['theta']:g} times the usual"
        f" plus {found['tolerance_s']:g} s"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
