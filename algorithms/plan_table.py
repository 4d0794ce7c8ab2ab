"""A plan as text for people: what comes back in which order, and what does not and why."""

from __future__ import annotations

from decimal import Decimal

from reprise.algorithms.model import Plan


def plan_table(plan: Plan) -> str:
    """Lines of at most a terminal's width where names allow it; ends with a newline."""
    state = "optimal" if plan.optimal else f"at most {plan.bound} possible ({plan.gap:.1%} gap)"
    lines = [
        f"{plan.algorithm}: priority {plan.value}, {state}; cost {_number(plan.cost, plan.scale)}",
        *([plan.why] if plan.why else []),
    ]
    if plan.packing_loss:
        lines.append(f"the nodes' sizes cost {plan.packing_loss} of priority against the plan for the sum")
    if plan.chosen:
        rows = [
            [c.query, str(c.priority), _number(c.cost, plan.scale), _places(plan, c.restores)]
            for c in plan.chosen
        ]
        lines += ["", *_table(["RESTORE", "PRIORITY", "ADDS", "PARTITIONS"], rows)]
    if plan.excluded:
        rows = [
            [e.query, e.code, ("" if e.entry_exact else "<= ") + _number(e.enters_at, plan.scale), e.reason]
            for e in plan.excluded
        ]
        lines += ["", *_table(["LEFT OUT", "CODE", "ENTERS AT", "REASON"], rows)]
    return "\n".join(lines) + "\n"


def _places(plan: Plan, partitions: tuple[str, ...]) -> str:
    if plan.placement is None:
        return " ".join(partitions)
    return " ".join(f"{name}@{plan.placement[name]}" for name in partitions)


def _number(number: int, scale: int) -> str:
    return f"{(Decimal(number) / scale).normalize():f}"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]
