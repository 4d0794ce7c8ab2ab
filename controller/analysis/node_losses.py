"""What the loss of each node would take to recover, with the current checkpointing protocol and with another one.

Who goes back is decided by the coordinator's own rules (`reprise.scheduler.loss`).  What that takes is what the driver says
that each partition would have to read and to apply again; with another protocol it is the rate at which rows come, for as
long as that protocol may take a partition back.  Seconds are what every recovery takes, then reading and applying by one
process for what was lost, as where one other node has room for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reprise.algorithms.checkpoint_costs import Figure, derived, measured, unknown
from reprise.algorithms.recovery_time import RestoreWork
from reprise.controller.analysis.protocol_costs import SLOTS, Known, reach_of, reach_text
from reprise.controller.status.recovery_time import PartitionRecovery, overhead_of, partition_recoveries
from reprise.controller.topology_view import policy_of
from reprise.controller.zookeeper.observation import snapshot_of
from reprise.scheduler.loss import Loss, loss_of
from reprise.scheduler.model import Policy, TopologyView
from reprise.spark_jobs.topology import StreamTopology

SECONDS = (
    "until the loss is noticed, planned for and installed, + bytes / rate of reading + rows / rate of applying of all that "
    "was lost"
)
NOT_KEPT = "what these have sent since the checkpoint is not kept"
ANEW = "what has `availability: amnesia` begins anew where it can, and then repeats nothing"
STANDBYS = "standbys go on in place of all that was lost"


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """If one node were lost now, and another one had room for what was there."""

    node: str
    """`node#incarnation`."""
    lost: tuple[str, ...]
    """Partitions that would be restored elsewhere."""
    promoted: tuple[str, ...]
    """Those that would go on where their standbys are; active ones repeat nothing."""
    back: tuple[str, ...] | None
    """Partitions at work that would go back with them; None: not known, and `figures` are of the lost ones alone."""
    why: str
    """Why those go back, or why it is not known."""
    rows: Figure
    """That would be applied once more."""
    read: Figure
    """Bytes of stored states that would be read: from the store, or by who lives from copies on its own node."""
    stream_s: Figure
    """Seconds of the stream that are repeated, of the partition that goes back furthest."""
    seconds: Figure
    """Until they are where they were; without what comes in meanwhile."""
    assumed: tuple[str, ...]
    """plan, install, load, replay: parts of the seconds that rest on no measurement of this topology yet."""


def losses_now(known: Known, view: TopologyView, policy: Policy) -> tuple[NodeLoss, ...]:
    """What the loss of each node that has partitions would take now.  `view`, `policy`: of the topology as it runs."""
    snapshot = snapshot_of(view, known.seen, known.now.paused)
    return tuple(_now(known, loss_of(snapshot, policy, node)) for node in _nodes(known))


def losses_of(
    known: Known, view: TopologyView, policy: Policy, variant: StreamTopology
) -> tuple[NodeLoss, ...]:
    """What it would take with another protocol, and just before its next snapshots with the current one, by formulas."""
    asked = policy_of(variant, policy.settle_s, policy.driver_grace_s)
    snapshot = snapshot_of(view, known.seen, known.now.paused)
    if known.now.checkpoint.uncoordinated and not variant.checkpoint.uncoordinated and snapshot.progress:
        snapshot = replace(snapshot, progress=replace(snapshot.progress, lines={}))  # it would have rounds
    return tuple(_then(known, loss_of(snapshot, asked, node), variant) for node in _nodes(known))


def _nodes(known: Known) -> list[str]:
    """Those that have partitions and live."""
    assignment = known.seen.desired.assignment if known.seen.desired else {}
    return sorted({*assignment.values()} & known.seen.nodes.keys(), key=lambda node: (len(node), node))


# -- as it runs --------------------------------------------------------------------------------------------------------


def _now(known: Known, loss: Loss) -> NodeLoss:
    seen = known.seen
    assert seen.progress is not None and seen.desired is not None
    back = loss.back or ()
    members = (*loss.lost, *back)
    # who has a standby and is among these does not go on there
    alone = replace(seen, progress=replace(seen.progress, standbys={}))
    works = partition_recoveries(members, alone, {}, known.now.batch_interval_s)
    missing = [p for p in members if p not in works]
    assumed: tuple[str, ...] = ()
    if missing:
        rows = seconds = unknown(f"of {missing[0]} it is not known what it would have to do")
    else:
        rows = measured(
            sum(w.rows for w in works.values()), "the most since the snapshot before the newest", "at most"
        )
        seconds = _seconds_now(known, loss, works)
        assumed = _assumed(known, (a for w in works.values() for a in w.assumed))
    sizes = [seen.stats[p].state_bytes if p in seen.stats else None for p in members]
    read = (
        unknown("the driver has not said yet how large states are")
        if None in sizes
        else measured(sum(size or 0 for size in sizes), "size of each newest stored state")
    )
    at = seen.progress.positions
    batches = max((max(0, at[p] - loss.newest.of(p)) for p in members if p in at), default=0)
    bound = "at most" if known.now.checkpoint.uncoordinated and batches else ""
    stream_s = measured(
        batches * known.now.batch_interval_s,
        f"{batches} batches behind what is stored, now, * batch.interval",
        bound,
    )
    found = NodeLoss(
        loss.node,
        loss.lost,
        loss.promoted,
        loss.back,
        _why(known, loss),
        rows,
        read,
        stream_s,
        seconds,
        assumed,
    )
    return _by_availability(known, loss, found)


def _seconds_now(known: Known, loss: Loss, works: Mapping[str, PartitionRecovery]) -> Figure:
    """What was lost is taken by one node, beside what goes back there; what goes back on the others runs beside that."""
    seen = known.seen
    assert seen.desired is not None
    home = seen.desired.assignment
    own = sum(works[p].load_s + works[p].replay_s for p in loss.lost)
    others: dict[str, float] = {}
    for p in loss.back or ():
        others[home[p]] = others.get(home[p], 0.0) + works[p].load_s + works[p].replay_s
    if not loss.lost:
        return derived(overhead_of(seen).seconds, f"what every recovery takes: {STANDBYS}", "at most")
    formula = SECONDS + (" and of what goes back on one other node" if others else "")
    most = max(others.values(), default=0.0)
    return derived(round(overhead_of(seen).seconds + own + most, 3), formula, "about")


def _by_availability(known: Known, loss: Loss, found: NodeLoss) -> NodeLoss:
    """What goes on or begins anew in another way than from a stored state has other figures."""
    progress = known.seen.progress
    assert progress is not None
    if passive := [p for p in loss.promoted if _available(known, p) == "passive-standby"]:
        why = unknown(f"what has come to {passive[0]} since its standby's copy is repeated, and not counted")
        found = replace(found, rows=why, stream_s=why, seconds=why, assumed=())
    if loss.everything:
        return found
    if fed := [p for p in loss.lost if p in progress.backed]:
        why = unknown(f"{fed[0]} is fed again from what it reads: how much that is is not known")
        found = replace(found, read=why, stream_s=why)
    if any(_available(known, p) == "amnesia" for p in loss.lost):
        told = (
            f if f.value is None else replace(f, bound="at most")
            for f in (found.rows, found.read, found.stream_s)
        )
        rows, read, stream_s = told
        found = replace(found, why=f"{found.why}; {ANEW}", rows=rows, read=read, stream_s=stream_s)
    return found


def _available(known: Known, partition: str) -> str:
    place = known.topology.partitions[partition]
    return "" if place.is_source else known.now.operator(place.place.operator).availability


def _why(known: Known, loss: Loss) -> str:
    if not loss.lost:
        return STANDBYS if loss.promoted else "nothing is there"
    if loss.everything:
        return _why_everything(known, loss)
    if loss.back is None:
        told = known.seen.progress.stored if known.seen.progress else {}
        if "dropped" not in told:
            return "the driver does not say whether all output is kept"
        return (
            f"{told['dropped']:.0f} partitions have dropped output for want of room: the driver finds who goes back when it "
            "comes to it"
        )
    if loss.back:
        return NOT_KEPT
    return "nobody at work goes back: what the lost ones need is kept, or read again"


def _why_everything(known: Known, loss: Loss) -> str:
    if not loss.back:
        return "all that is at work is there"
    if known.seen.progress is not None and not known.seen.progress.deterministic:
        return "everything goes back: a replay may differ"
    return "everything goes back, by recovery.scope, recovery.strategy, or as a partition is behind the checkpoint"


# -- by formulas       ---------------------------------------------------------------------------------------------


def _then(known: Known, loss: Loss, variant: StreamTopology) -> NodeLoss:
    """Whether output would be kept is not known where it is not kept now in the same way."""
    back: Sequence[str] | None = loss.back
    why = (
        "nobody at work goes back, as long as output fits into recovery.bufferMemory and recovery.bufferDisk"
    )
    if not loss.lost:
        why = STANDBYS
    elif loss.everything:
        why = _why_everything(known, loss)
    elif variant.checkpoint.uncoordinated:
        back = ()
    elif known.now.checkpoint.uncoordinated:
        back = None
        why = "whether output since a checkpoint would fit into recovery.bufferMemory is not known; else ancestors go back"
    elif back:
        why = NOT_KEPT
    members = (*loss.lost, *(back or ()))
    rows, seconds, assumed, stream_s = _repeated(known, variant, members, loss)
    found = NodeLoss(
        loss.node,
        loss.lost,
        loss.promoted,
        None if back is None else tuple(back),
        why,
        rows,
        _read(known, variant, members),
        stream_s,
        seconds,
        assumed,
    )
    return _by_availability(known, loss, found)


def _read(known: Known, variant: StreamTopology, members: Collection[str]) -> Figure:
    if variant.checkpoint.eventual:
        return unknown(SLOTS)
    sizes = known.sizes
    if sizes is None:
        return unknown(known.why_no_sizes)
    bound = "at most" if known.now.checkpoint.log == "checkpointed" != variant.checkpoint.log else ""
    text = "size of each newest stored state"
    if variant.checkpoint.log == "checkpointed" != known.now.checkpoint.log:
        bound, text = "at least", f"{text}, without the output that would be stored with it"
    return derived(sum(sizes[p] for p in members), text, bound)


def _repeated(
    known: Known, variant: StreamTopology, members: Collection[str], loss: Loss
) -> tuple[Figure, Figure, tuple[str, ...], Figure]:
    """Rows, seconds, what these assume, and how much of the stream."""
    stats = known.seen.stats
    if variant.checkpoint.eventual:
        not_known = unknown(SLOTS)
        return not_known, not_known, (), not_known
    reach, text = reach_of(known, variant, dict.fromkeys(members)), reach_text(variant, known)
    stream_s = derived(max(reach.values(), default=0.0), text, "about")
    special = (
        known.seen.progress.backed | known.seen.progress.unbacked if known.seen.progress else frozenset()
    )
    if known.quiet and members:
        return unknown(known.quiet), unknown(known.quiet), (), stream_s
    silent = [
        p
        for p in members
        if p not in stats or stats[p].input_rows_s is None or stats[p].restore is None or p in special
    ]
    if silent:
        not_known = unknown(f"of {silent[0]} it is not known how many rows come")
        return not_known, not_known, (), stream_s
    works = {p: _work(known, p, reach[p]) for p in members}
    rows = derived(
        sum(w.rows for w in works.values()), f"rows a second, as they came last, * ({text})", "about"
    )
    sizes = known.sizes
    if sizes is None:
        return rows, unknown(known.why_no_sizes), (), stream_s
    home = known.seen.desired.assignment if known.seen.desired else {}
    nodes: dict[str, float] = {}
    for p in members:
        nodes[home[p]] = nodes.get(home[p], 0.0) + works[p].load_s(sizes[p]) + works[p].replay_s
    own = nodes.pop(loss.node, 0.0)
    total = overhead_of(known.seen).seconds + own + max(nodes.values(), default=0.0)
    assumed = _assumed(known, (a for p, w in works.items() for a in w.assumed(sizes[p])))
    return rows, derived(round(total, 3), SECONDS, "about"), assumed, stream_s


def _work(known: Known, partition: str, reach_s: float) -> RestoreWork:
    stats = known.seen.stats[partition]
    assert stats.restore is not None and stats.input_rows_s is not None
    return RestoreWork(round(stats.input_rows_s * reach_s), stats.restore.rows_s, stats.restore.bytes_s)


def _assumed(known: Known, parts: Iterable[str]) -> tuple[str, ...]:
    return (*overhead_of(known.seen).assumed, *sorted(set(parts)))
