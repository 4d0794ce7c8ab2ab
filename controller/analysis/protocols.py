"""The checkpointing protocols that a topology could have, with what `reprise validate` says against each."""

from __future__ import annotations

from dataclasses import dataclass

from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, check, override
from reprise.spark_jobs.topology.check import mistakes

VARIANTS = (
    ("coordinated", "none"),
    ("uncoordinated", "memory"),
    ("uncoordinated", "checkpointed"),
    ("communication-induced", "checkpointed"),
    ("eventual", "checkpointed"),
)
"""Protocol and log."""


@dataclass(frozen=True, slots=True)
class Variant:
    """`resource`: the topology with this protocol and log, and with everything else as it is; None: it cannot be had."""

    protocol: str
    log: str
    current: bool
    resource: StreamTopology | None
    refused: tuple[str, ...]
    """What `reprise validate` says against it: field and reason."""
    warnings: tuple[str, ...]
    """What it warns of."""


def variants(resource: StreamTopology, seen: Observation) -> tuple[Variant, ...]:
    """Each protocol, the current one as it is."""
    return tuple(_variant(resource, seen, protocol, log) for protocol, log in VARIANTS)


def _variant(resource: StreamTopology, seen: Observation, protocol: str, log: str) -> Variant:
    policy = resource.checkpoint
    if (policy.protocol, policy.log) == (protocol, log):
        return Variant(protocol, log, True, resource, (), _warnings(resource))
    changes: dict[str, object] = {"checkpoint.protocol": protocol, "checkpoint.log": log}
    if policy.eventual and protocol != "eventual":
        changes["checkpoint.eventual"] = None  # it says nothing of another one
    try:
        found = override(resource, changes)
        wrong = mistakes(found)
    except SpecError as error:
        wrong = error.all
    refused = tuple(str(error) for each in wrong for error in each.all)
    # classes of users are not imported here; the driver has asked them
    if protocol == "eventual" and not refused and seen.progress and not seen.progress.deterministic:
        refused = (
            "spec.operators: an operator is not deterministic, as the driver says, and `checkpoint.protocol: eventual` "
            "needs equal rows of a replay",
        )
    if refused:
        return Variant(protocol, log, False, None, refused, ())
    return Variant(protocol, log, False, found, (), _warnings(found))


def _warnings(resource: StreamTopology) -> tuple[str, ...]:
    try:
        return tuple(
            f"{w.field}: {w.reason}" for w in check(resource) if w.field == "spec.checkpoint.protocol"
        )
    except SpecError:  # what runs was checked by the version that started it
        return ()
