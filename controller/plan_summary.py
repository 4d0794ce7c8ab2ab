"""A plan in one sentence, for logs, time lines and pages."""

from __future__ import annotations

from reprise.controller.plural import counted
from reprise.scheduler.incident import PlanRecord


def plan_summary(plan: PlanRecord) -> str:
    """One sentence: what triggered it, what it brings back, how good it is."""
    queries = plan.plan.get("queries", [])
    back = ", ".join(map(str, queries)) if isinstance(queries, list) and queries else "no query"
    restored = counted(len(plan.added), "partition", "partitions")
    text = f"{plan.trigger}: restores {restored} and brings back {back}"
    value, bound = plan.plan.get("value"), plan.plan.get("bound")
    if plan.plan.get("optimal"):
        text += f" (summed priority {value}, the most that is possible)"
    elif value is not None:
        text += f" (summed priority {value}; at most {bound} is possible)"
    if plan.left_out:
        text += f"; {counted(len(plan.left_out), 'query waits', 'queries wait')}"
    return text
