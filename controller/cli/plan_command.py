"""`reprise plan`: the planners by hand, on an instance file or on the plans of a recorded incident."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from algorithms import ALGORITHMS, Instance, InstanceError, Plan, loads_instance, plan_to_json, solve
from controller.cli.options import DURATION
from controller.cli.recorded import RecordedPlan, recorded_plans


@click.command("plan")
@click.option("-i", "--input", "file", type=click.Path(path_type=Path), help="A planning instance (JSON).")
@click.option(
    "--from-incident", "folder", type=click.Path(path_type=Path), help="Plan again what a run had to plan."
)
@click.option(
    "--algorithm", default="auto", show_default=True, help=f"One of {', '.join(sorted(ALGORITHMS))}."
)
@click.option("--time-limit", type=DURATION, default="1s", show_default=True)
@click.option("-o", "--output", type=click.Choice(("json", "table")), default="table", show_default=True)
def command(file: Path | None, folder: Path | None, algorithm: str, time_limit: float, output: str) -> None:
    """Compute which failed partitions to restore now, where, and which queries that brings back; with the reason for
    each query left out.

    \b
    Examples:
      reprise plan -i instance.json --algorithm ilp -o json
      reprise plan --from-incident out/eight --algorithm best-density
    """
    if (file is None) == (folder is None):
        raise click.UsageError("give exactly one of --input and --from-incident")
    if file is not None:
        plan = _solve(_read(file), algorithm, time_limit)
        if output == "json":
            click.echo(json.dumps(plan_to_json(plan), indent=1))
        else:
            show(Console(), plan)
        return
    recorded = recorded_plans(folder or Path())
    again = [(record, _solve(record.instance, algorithm, time_limit)) for record in recorded]
    if output == "json":
        pairs = [{"id": r.id, "recorded": r.plan, "again": plan_to_json(plan)} for r, plan in again]
        click.echo(json.dumps(pairs, indent=1))
    else:
        _compare(Console(), again)


def _read(file: Path) -> Instance:
    try:
        return loads_instance(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InstanceError("$", f"is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _solve(instance: Instance, algorithm: str, time_limit: float) -> Plan:
    return solve(instance, algorithm, time_limit, time.monotonic)


def show(console: Console, plan: Plan) -> None:
    """The plan as tables: what comes back, in which order and where, and why the rest waits."""
    quality = "optimal" if plan.optimal else f"at most {plan.bound} is possible"
    head = f"{plan.algorithm}: value {plan.value} ({quality}), cost {plan.cost / plan.scale:g}, {plan.seconds:.3f} s"
    console.print(head, style="bold", highlight=False)
    if plan.why:
        console.print(plan.why, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("brings back", "priority", "cost", "restores"):
        table.add_column(name, justify="right" if name in ("priority", "cost") else "left")
    for choice in plan.chosen:
        places = [_placed(plan, partition) for partition in choice.restores]
        table.add_row(choice.query, str(choice.priority), f"{choice.cost / plan.scale:g}", " ".join(places))
    console.print(table)
    for exclusion in plan.excluded:
        console.print(f"waits: {exclusion.query}: {exclusion.reason}", highlight=False, soft_wrap=True)


def _placed(plan: Plan, partition: str) -> str:
    node = (plan.placement or {}).get(partition)
    return f"{partition}@{node}" if node else partition


def _compare(console: Console, again: list[tuple[RecordedPlan, Plan]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("plan")
    for name in ("candidates", "free", "recorded value", "value now", "bound", "seconds"):
        table.add_column(name, justify="right")
    for record, plan in again:
        free = sum(node.free for node in record.instance.nodes)
        table.add_row(
            record.id,
            str(len(record.instance.queries)),
            f"{free}m",
            str(record.plan.get("value", "-")),
            str(plan.value),
            str(plan.bound),
            f"{plan.seconds:.3f}",
        )
    console.print(table)
