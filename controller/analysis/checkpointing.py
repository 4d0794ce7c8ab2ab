"""`reprise explain --checkpoint`: what each checkpointing protocol would cost a running topology, and what a loss would.

From its own records alone.  Each figure says whether it was measured, derived by which formula, or why it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reprise.controller.analysis.node_losses import NodeLoss, losses_now, losses_of
from reprise.controller.analysis.protocol_costs import Costs, Known, costs_now, costs_of
from reprise.controller.analysis.protocols import Variant, variants
from reprise.controller.analysis.simulate import decided_policy, decided_view
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Progress
from reprise.scheduler.view import taken_over
from reprise.spark_jobs.topology import StreamTopology, expand

SILENT_S = 60.0
"""A driver that lives says something every few seconds; clocks of two machines differ by less."""


@dataclass(frozen=True, slots=True)
class ProtocolOutlook:
    """One protocol."""

    protocol: str
    log: str
    current: bool
    refused: tuple[str, ...]
    """Why the topology cannot have it, as `reprise validate` says; then nothing else is said."""
    warnings: tuple[str, ...]
    costs: Costs | None
    """While nothing fails, by the same formulas for all protocols."""
    losses: tuple[NodeLoss, ...]
    """Of each node, by these."""
    costs_now: Costs | None = None
    """Of the current one, as it is measured; the others have none."""
    losses_now: tuple[NodeLoss, ...] = ()
    """Of the current one, if a node were lost at this moment."""


@dataclass(frozen=True, slots=True)
class CheckpointOutlook:
    """All protocols, the current one among them."""

    topology: str
    time: float
    not_calm: str
    """Why nothing can be said of losses; empty where everything is at work."""
    protocols: tuple[ProtocolOutlook, ...]


def checkpoint_outlook(
    resource: StreamTopology, seen: Observation, operated: bool = False
) -> CheckpointOutlook:
    """`operated`: an operator on Kubernetes decides."""
    known = Known(resource, expand(resource), seen)
    not_calm = _not_calm(known)
    view, policy = decided_view(resource, operated), decided_policy(resource, seen)
    found = []
    for variant in variants(resource, seen):
        outlook = _outlook(variant)
        if variant.resource is not None and not not_calm:
            costs, losses = (
                costs_of(known, variant.resource),
                losses_of(known, view, policy, variant.resource),
            )
            outlook = replace(outlook, costs=costs, losses=losses)
        if variant.current and not not_calm:
            outlook = replace(outlook, costs_now=costs_now(known), losses_now=losses_now(known, view, policy))
        found.append(outlook)
    return CheckpointOutlook(resource.name, seen.time, not_calm, tuple(found))


def _outlook(variant: Variant) -> ProtocolOutlook:
    return ProtocolOutlook(
        variant.protocol, variant.log, variant.current, variant.refused, variant.warnings, None, ()
    )


def _not_calm(known: Known) -> str:
    seen = known.seen
    if not seen.connected:
        return "ZooKeeper does not answer"
    if seen.desired is None or seen.progress is None:
        return "nothing is at work yet"
    if seen.incident is not None:
        return f"incident {seen.incident.id} is open: what is measured now is a recovery"
    if why := _no_word(seen, seen.progress):
        return why
    if not taken_over(seen.desired, seen.progress):
        return "the driver has not taken over the newest desired state yet"
    missing = [f"{p} is not at work" for p in known.topology.order if p not in seen.progress.positions]
    gone = sorted({n for n in seen.desired.assignment.values() if n not in seen.nodes})
    missing += [f"{node} is gone, and no incident is open yet" for node in gone]
    return missing[0] if missing else ""


def _no_word(seen: Observation, progress: Progress) -> str:
    """Why the newest report is none of now."""
    if seen.waits:
        return f"the driver waits: {seen.waits}"
    silent_s = seen.time - progress.time
    return (
        f"the driver has said nothing for {silent_s:.0f} s" if progress.time and silent_s > SILENT_S else ""
    )
