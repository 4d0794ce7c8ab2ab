"""How many seconds a query would be down if a node were lost now, and what each of its partitions would have to do.

Taken from the status document alone, which says how it is reckoned (`reprise.controller.status.recovery_time`).  The node
that is named is the one that would take longest; what it would have to do is that of all of its partitions, which are
lost together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprise.controller.status import StatusDocument
from reprise.controller.status.model import AimView, PartitionView, QueryView
from reprise.spark_jobs.topology.limits import Needs


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """One partition that the query needs."""

    partition: str
    node: str
    seconds: float
    """If it alone were lost."""
    state_bytes: int
    load_s: float
    rows: int
    """That it would apply once more, at most."""
    replay_s: float
    assumed: tuple[str, ...]
    """load, replay: which of these rest on rates that were not measured here."""
    aim: AimView | None = None
    """How much it may have to do, where that follows from an objective."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds; the parts add up to `seconds`."""

    seconds: float
    node: str
    """`node#incarnation` whose loss would take longest."""
    partitions_there: int
    """How many would be restored with it, also those of other queries."""
    detection_s: float
    plan_s: float
    install_s: float
    load_s: float
    replay_s: float
    assumed: tuple[str, ...]
    """Parts that rest on no measurement, or not all of them."""
    partitions: tuple[PartitionTime, ...]
    """All that it needs, those that take longest first."""
    objective_s: float | None = None
    """In how many seconds it is to be back; None: nobody says."""
    held: bool | None = None
    """Whether it would be."""
    why: str = ""
    """Where it is not held: what can be done about it; one sentence."""


def recovery_of(document: StatusDocument, query: QueryView) -> Recovery | None:
    """The recovery of a query; None: of one of its partitions it is not known what it would have to do."""
    fixed, node = document.overhead, query.slowest_node
    if query.recovery_s is None or node is None or fixed is None:
        return None
    there = [p for p in document.partitions if p.node == node and p.load_s is not None]
    named = {part for p in there for part in p.assumed}
    overhead = fixed.detection_s + fixed.plan_s + fixed.install_s
    found = [_time(p, overhead) for p in needed_by(document, query.id)]
    return Recovery(
        seconds=query.recovery_s,
        node=node,
        partitions_there=len(there),
        detection_s=fixed.detection_s,
        plan_s=fixed.plan_s,
        install_s=fixed.install_s,
        load_s=round(sum(p.load_s or 0.0 for p in there), 3),
        replay_s=round(sum(p.replay_s or 0.0 for p in there), 3),
        assumed=(*fixed.assumed, *sorted(named)),
        partitions=tuple(sorted(found, key=lambda one: -one.seconds)),
        objective_s=query.objective_s,
        held=query.held,
        why="" if query.held is not False else _why(query.objective_s or 0.0, overhead, there),
    )


def _why(objective_s: float, overhead: float, there: Sequence[PartitionView]) -> str:
    """`there`: all that is on the node."""
    if overhead >= objective_s:
        return f"noticing the loss, planning and installing alone take {overhead:.1f} s"
    fixed = [p for p in there if p.aim is None]
    fixed_s = sum((p.load_s or 0.0) + (p.replay_s or 0.0) for p in fixed)
    if fixed and overhead + fixed_s >= objective_s:
        return (
            f"{fixed_s:.1f} s are of partitions about which it can do nothing, as they are not stored slot by slot "
            f"({', '.join(p.id for p in fixed[:3])}): a shorter `checkpoint.interval`, or fewer partitions on a node"
        )
    tight = [p.id for p in there if p.aim is not None and p.aim.least_s > p.aim.within_s]
    if tight:
        return (
            f"to read each open slot once, and to replay what comes between two times that the log is stored, takes longer "
            f"({', '.join(tight[:3])}): a shorter `checkpoint.interval`, or fewer partitions on a node"
        )
    return (
        "slots are not stored as often as that needs: more `checkpoint.eventual.spend`, or a shorter `every`"
    )


def _time(p: PartitionView, overhead: float) -> PartitionTime:
    load_s, replay_s = p.load_s or 0.0, p.replay_s or 0.0
    seconds = round(overhead + load_s + replay_s, 3)
    rows, size = p.replay_rows or 0, p.state_bytes or 0
    return PartitionTime(p.id, p.node or "", seconds, size, load_s, rows, replay_s, p.assumed, p.aim)


def needed_by(document: StatusDocument, query: str) -> list[PartitionView]:
    """All partitions that a query needs, in topological order."""
    graph = document.graph
    inputs: dict[str, list[tuple[str, bool]]] = {}
    for edge in graph.edges:
        inputs.setdefault(edge.target, []).append((edge.origin, edge.forward))
    operator, _, index = query.rpartition(".")
    own, whole = Needs(inputs, {o.name: len(o.partitions) for o in graph.operators}).of(operator)
    mine = {f"{name}.{index}" for name in own}
    return [p for p in document.partitions if p.operator in whole or p.id in mine]
