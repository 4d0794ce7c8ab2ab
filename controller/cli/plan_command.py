"""`reprise plan`: the newest plan of a topology; or the planners by hand, on an instance or a recorded incident."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import click
from rich.console import Console, Group, RenderableType
from rich.text import Text

from reprise.algorithms import (
    ALGORITHMS,
    Instance,
    InstanceError,
    Plan,
    loads_instance,
    plan_to_json,
    solve,
    solve_strict,
)
from reprise.algorithms.registry import OPERATOR_CENTRIC
from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.complete import planners
from reprise.controller.cli.exits import NotRunningError
from reprise.controller.cli.options import DURATION
from reprise.controller.cli.recorded import RecordedPlan, recorded_plans
from reprise.controller.cli.render import for_programs, how_found, output_option, plain_console, plain_table
from reprise.controller.cli.resources_page import plan_page
from reprise.controller.cli.target import Address, target_options
from reprise.controller.cli.target_kubernetes import PageError
from reprise.controller.status.model import PlanView
from reprise.spark_jobs.topology.choices import QueryOrder


@click.command("plan")
@name_argument
@target_options
@click.option(
    "-i", "--input", "instance", type=click.Path(path_type=Path), help="A planning instance (JSON)."
)
@click.option(
    "--from-incident", "folder", type=click.Path(path_type=Path), help="Plan again what a run had to plan."
)
@click.option(
    "--algorithm",
    default="auto",
    show_default=True,
    shell_complete=planners,
    help=f"With --input or --from-incident: one of {', '.join(sorted(ALGORITHMS))}.",
)
@click.option(
    "--order",
    type=click.Choice(get_args(QueryOrder)),
    default="value",
    show_default=True,
    help="value: the greatest summed priority; strict: no query before one of a higher priority.",
)
@click.option(
    "--time-limit", type=DURATION, default="1s", show_default=True, help="The longest time for one plan."
)
@output_option
def command(
    address: Address,
    instance: Path | None,
    folder: Path | None,
    algorithm: str,
    order: QueryOrder,
    time_limit: float,
    output: str,
) -> None:
    """Which failed partitions are restored now, where, and which queries that brings back; with the reason for each
    query left out.

    Of a topology: its newest plan. With --input or --from-incident: planned here, by hand.

    \b
    Examples:
      reprise plan --out out/eight
      reprise plan flights -n streams -o yaml
      reprise plan -i instance.json --algorithm ilp -o json
      reprise plan --from-incident out/eight --algorithm best-density
    """
    if instance is not None and folder is not None:
        raise click.UsageError("give one of --input and --from-incident")
    if instance is not None:
        plan = _solve(_read(instance), order, algorithm, time_limit)
        if not for_programs(plan_to_json(plan), output):
            show(plain_console(), plan)
    elif folder is not None:
        recorded = recorded_plans(folder, edges=algorithm == OPERATOR_CENTRIC)
        again = [(record, _solve(record.instance, order, algorithm, time_limit)) for record in recorded]
        pairs = [{"id": r.id, "recorded": r.plan, "again": plan_to_json(plan)} for r, plan in again]
        if not for_programs(pairs, output):
            _compare(plain_console(), again)
    else:
        _of_topology(address, output)


def _of_topology(address: Address, output: str) -> None:
    """The newest plan of the open incident, else of the last one."""
    with address.open() as target:
        try:
            document = target.document()
        except PageError as error:
            plans = (target.resources() or {"plans": []})["plans"]
            if not plans:
                raise NotRunningError(f"no RecoveryPlan there; {error}") from error
            if not for_programs(plans[0], output):
                plain_console().print(plan_page(plans[0]))
            return
    last = document.last_incident
    plan = document.plan or (last.plans[-1] if last and last.plans and document.incident is None else None)
    if not for_programs(plan, output):
        plain_console().print(plan_view_page(plan) if plan else Text("no plan has been made"))


def plan_view_page(plan: PlanView) -> RenderableType:
    """What it brings back, in which order, where; and why the rest waits."""
    quality = "optimal" if plan.optimal else f"at most {plan.bound} is possible"
    free = sum(plan.free.values())
    head = Text(f"{plan.id}  {plan.trigger}", style="bold")
    head.append(
        f"  worth {plan.value} ({quality}), {how_found(plan.algorithm)}, {plan.seconds:.3f} s",
        style="default",
    )
    more = [
        f"{free}m free on {len(plan.free)} nodes; {plan.at_work} of {len(plan.added)} partitions are back"
    ]
    more += ["everything rolled back to checkpoint " + str(plan.checkpoint)] if plan.rollback else []
    more += [text for text in (plan.why, plan.note) if text]
    table = plain_table()
    for name in ("query", "priority", "", "takes", "why"):
        table.add_column(name, justify="right" if name in ("priority", "takes") else "left")
    for entry in plan.chosen:
        places = " ".join(f"{p}@{plan.added.get(p, '?')}" for p in entry.restores)
        table.add_row(
            entry.query,
            str(entry.priority),
            Text("comes back", style="green"),
            f"{entry.cost}m",
            Text(places),
        )
    for left in plan.left_out:
        table.add_row(left.query, str(left.priority), Text("waits", style="bold red"), "", Text(left.reason))
    return Group(head, *(Text(line, style="dim") for line in more), table)


def _read(file: Path) -> Instance:
    try:
        return loads_instance(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InstanceError("$", f"is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _solve(instance: Instance, order: QueryOrder, algorithm: str, time_limit: float) -> Plan:
    by = solve_strict if order == "strict" else solve
    return by(instance, algorithm, time_limit, time.monotonic)


def show(console: Console, plan: Plan) -> None:
    """The plan as tables: what comes back, in which order and where, and why the rest waits."""
    quality = "optimal" if plan.optimal else f"at most {plan.bound} is possible"
    found = f"{how_found(plan.algorithm)}, {plan.seconds:.3f} s"
    head = f"value {plan.value} ({quality}), cost {plan.cost / plan.scale:g}, {found}"
    console.print(head, style="bold", highlight=False)
    if plan.why:
        console.print(plan.why, highlight=False)
    table = plain_table()
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
    table = plain_table()
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
