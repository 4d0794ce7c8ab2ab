"""What a checkpointing protocol costs a topology while nothing fails, and what it takes back when everything is lost.

What the current protocol costs now is what the driver has counted.  What each of them would cost, that one too, follows from
sizes, rates and intervals by the formulas of `reprise.algorithms.checkpoint_costs`, each named in its figure: so they can be
compared with each other.  Where one of these is not known, neither is what would follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from reprise.algorithms.checkpoint_costs import (
    Figure,
    back_along,
    derived,
    furthest_s,
    headers_a_second,
    measured,
    messages_between,
    output_held,
    stored_a_second,
    unknown,
)
from reprise.algorithms.communication_induced import size_of
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import StreamTopology, Topology

SLOTS = "which slots open, close and change is known only where states are stored slot by slot"
NO_HEADERS = "this protocol adds nothing to messages"
LEAST_KEPT = 2
"""Batches of output that have to be there to say how many bytes one has."""


@dataclass(frozen=True, slots=True)
class Costs:
    """While nothing fails."""

    stored: Figure
    """Bytes a second that are written to the checkpoint location."""
    headers: Figure
    """Bytes a second that go between nodes with messages, beside rows."""
    kept: Figure
    """Bytes of output that nodes keep for a replay, in memory and on disk, all together."""
    round_s: Figure | None
    """Seconds from announcing a checkpoint until it is complete, for which the slowest partition is waited for; None: there
    are no rounds."""
    total_s: Figure
    """Seconds of the stream that are repeated when everything is lost."""


@dataclass(frozen=True, slots=True)
class Known:
    """What costs are computed from.  `now`: the topology as it runs."""

    now: StreamTopology
    topology: Topology
    seen: Observation

    @property
    def sizes(self) -> Mapping[str, int] | None:
        """Bytes of each partition's newest stored state; None: they do not say how large whole states are."""
        stats = self.seen.stats
        if self.now.checkpoint.eventual or not self._stored_once:
            return None
        if not self.topology.partitions.keys() <= stats.keys():
            return None
        return {p: stats[p].state_bytes for p in self.topology.order}

    @property
    def _stored_once(self) -> bool:
        """Each partition; before that the driver says 0 of those that are not."""
        return self.seen.progress is not None and self.seen.progress.checkpoint > 0

    @property
    def why_no_sizes(self) -> str:
        """Where there are none."""
        if self.now.checkpoint.eventual:
            return "states that are stored slot by slot do not say how large whole ones are"
        if not self._stored_once:
            return "no checkpoint is complete yet, so nothing says how large states are"
        return "the driver has not said yet how large the states of all partitions are"

    def more_than(self, variant: StreamTopology) -> str:
        """Why sizes are more than this would store; empty: they are not."""
        if self.now.checkpoint.log == "checkpointed" != variant.checkpoint.log:
            return "states are stored with output now"
        return "of states in pages only what has changed is written" if self.now.checkpoint.paged else ""

    @property
    def quiet(self) -> str:
        """Why no rows come now, so that their rate says nothing; empty: they come."""
        if self.seen.desired is not None and self.seen.desired.paused:
            return "the stream is paused: no rows come"
        return "the stream has ended: no rows come" if self.seen.progress and self.seen.progress.ended else ""

    @property
    def round_s(self) -> float | None:
        """Seconds from announcing the newest checkpoint until it was complete; None: not known."""
        record = self.seen.checkpoint
        if record is None or record.position == 0 or self.now.checkpoint.uncoordinated:
            return None
        return record.seconds or None  # a line that another protocol has left was not announced

    @property
    def output_s(self) -> Figure:
        """Bytes of output a second, as buffers hold it."""
        progress, policy = self.seen.progress, self.now.checkpoint
        if policy.uncoordinated:
            return unknown(
                "what is kept now reaches back as far as each reader's own snapshot, so it gives no rate"
            )
        if progress is None or progress.kept_since is None or not self.now.keeps_output:
            return unknown("output is kept now only until its readers have it, so it gives no rate")
        at = [progress.positions[p] for p in self.operators if p in progress.positions]
        batches = int(median(at)) - progress.kept_since if at else 0
        if batches < LEAST_KEPT:
            return unknown("too few batches of output are kept at this moment: ask again")
        kept = progress.buffers.get("memory", 0) + progress.buffers.get("disk", 0)
        twice = {o.availability for o in self.now.operators} & {"active-standby", "upstream-backup"}
        more = f"; {' and '.join(sorted(twice))} keep more, so it is less" if twice else ""
        return derived(
            kept / batches / self.now.batch_interval_s,
            f"bytes of output that are kept now / {batches} batches of them / batch.interval{more}",
            "at most" if twice else "",
        )

    @property
    def operators(self) -> list[str]:
        """Partitions that are no sources."""
        return [p.id for p in self.topology.partitions.values() if not p.is_source]


def intervals_of(resource: StreamTopology, topology: Topology) -> dict[str, float]:
    """Seconds between two snapshots of each partition, as the resource says."""
    policy = resource.checkpoint
    usual = policy.interval_s
    if usual is None:
        usual = (policy.every_batches or 1) * resource.batch_interval_s
    own = {o.name: o.checkpoint_interval_s for o in resource.operators if policy.uncoordinated}
    found = {}
    for partition in topology.partitions.values():
        mine = own.get(partition.place.operator)
        found[partition.id] = usual if mine is None else mine
    return found


def reach_of(
    known: Known, variant: StreamTopology, among: Mapping[str, object] | None = None
) -> dict[str, float]:
    """Seconds of the stream that each partition goes back about at most when `among` are lost together (None: all), and
    readers keep up; without what storing takes, which is not known, but for rounds."""
    topology, policy = known.topology, variant.checkpoint
    intervals = intervals_of(variant, topology)
    members = [p for p in topology.order if among is None or p in among]
    if not policy.uncoordinated:
        return {p: intervals[p] + (known.round_s or 0.0) for p in members}
    own = {p: furthest_s(intervals[p], policy.jitter) for p in members}
    if policy.log != "memory":
        return own
    operators = [p for p in members if not topology.partitions[p].is_source]
    readers = {
        p: [t for d in topology.partitions[p].downstream if not d.feedback for t in d.targets]
        for p in operators
    }
    return own | back_along(operators, readers, own)


def reach_text(variant: StreamTopology, known: Known) -> str:
    """The formula of `reach_of`."""
    policy = variant.checkpoint
    if not policy.uncoordinated:
        more = (
            " + what the newest checkpoint took"
            if known.round_s is not None
            else ", without what storing takes"
        )
        return f"checkpoint.interval{more}"
    if policy.log == "memory":
        return "(1 + jitter) * interval, summed along the longest path of lost operators, without what storing takes"
    return "(1 + jitter) * interval, without what storing takes"


def costs_now(known: Known) -> Costs:
    """What the current protocol costs, as far as it is measured."""
    return Costs(
        stored=_stored_now(known),
        headers=_headers_now(known),
        kept=_kept_now(known),
        round_s=None if known.now.checkpoint.uncoordinated else _round(known),
        total_s=_total_now(known),
    )


def costs_of(known: Known, variant: StreamTopology) -> Costs:
    """What a protocol costs by formulas; `variant`: the topology with it, or as it is."""
    return Costs(
        stored=_stored(known, variant),
        headers=_headers(known, variant),
        kept=_kept(known, variant),
        round_s=None if variant.checkpoint.uncoordinated else _round(known),
        total_s=_total(known, variant),
    )


def _stored_now(known: Known) -> Figure:
    told = known.seen.progress.stored if known.seen.progress else {}
    if not told:
        return unknown("the driver has not said yet what it has stored")
    seconds, count = told.get("seconds", 0.0), told.get("snapshots", 0)
    if not seconds or not count:
        return unknown("this driver has stored nothing yet")
    return measured(
        told.get("bytes", 0) / seconds, f"{count:.0f} files in {seconds:.0f} s of this driver, on average"
    )


def _stored(known: Known, variant: StreamTopology) -> Figure:
    policy, sizes = variant.checkpoint, known.sizes
    if policy.eventual:
        return unknown(SLOTS)
    if sizes is None:
        return unknown(known.why_no_sizes)
    intervals = intervals_of(variant, known.topology)
    bytes_s, formula = stored_a_second(sizes, intervals), "size of each newest state / its interval"
    bound = ""
    if more := known.more_than(variant):
        bound, formula = "at most", f"{formula}; {more}"
    if policy.log != "checkpointed" or known.now.checkpoint.log == "checkpointed":
        return _with_headers(known, variant, bytes_s, formula, bound)
    output = known.output_s
    if output.value is None:
        return unknown(f"how much output there is: {output.basis}")
    parts = known.topology.partitions  # those of one operator have one interval
    readers = {p: [t for d in parts[p].downstream for t in d.targets[:1]] for p in known.operators}
    times = output_held(readers, intervals, policy.jitter)
    bytes_s += output.value * times
    formula += (
        f" + {times:.3g} = (1 + jitter) * interval of a reader / own interval, the greatest, * output a second "
        f"({output.basis})"
    )
    return _with_headers(known, variant, bytes_s, formula, "at most")


def _with_headers(known: Known, variant: StreamTopology, bytes_s: float, formula: str, bound: str) -> Figure:
    if not variant.checkpoint.induced:
        return derived(bytes_s, formula, bound)
    count = len(known.topology.partitions)
    own = stored_a_second(
        dict.fromkeys(known.topology.order, size_of(count)), intervals_of(variant, known.topology)
    )
    return derived(
        bytes_s + own,
        f"{formula} + a header a snapshot; without forced snapshots, whose number is not known",
        "about",
    )


def _headers_now(known: Known) -> Figure:
    if not known.now.checkpoint.induced:
        return derived(0.0, NO_HEADERS)
    told = known.seen.progress.stored if known.seen.progress else {}
    if not told.get("seconds"):
        return unknown("the driver has not said yet what it has sent")
    return measured(
        told.get("header_bytes", 0) / told["seconds"],
        f"in {told['seconds']:.0f} s of this driver, on average",
    )


def _headers(known: Known, variant: StreamTopology) -> Figure:
    if not variant.checkpoint.induced:
        return derived(0.0, NO_HEADERS)
    assignment = known.seen.desired.assignment if known.seen.desired else {}
    parts = known.topology.partitions
    readers = {p.id: [d.targets for d in p.downstream] for p in parts.values()}
    messages = messages_between(readers, assignment)
    return derived(
        headers_a_second(len(parts), messages, variant.batch_interval_s),
        f"{messages} messages between nodes in a batch * {size_of(len(parts))} bytes / batch.interval",
    )


def _kept_now(known: Known) -> Figure:
    progress = known.seen.progress
    if progress is None or not progress.buffers:
        return unknown("the driver has not said yet what is kept")
    return measured(sum(progress.buffers.values()), "memory and disk of all nodes, now")


def _kept(known: Known, variant: StreamTopology) -> Figure:
    if variant.checkpoint.eventual:
        return unknown(SLOTS)
    if not variant.keeps_output:
        return unknown("output is kept until its readers have it; how long that takes is not measured")
    output = known.output_s
    if output.value is None:
        return unknown(f"how much output there is: {output.basis}")
    longest = max(reach_of(known, variant).values(), default=0.0)
    return derived(
        output.value * longest,
        f"output a second ({output.basis}) * {reach_text(variant, known)}, as if all were kept for as long as the furthest",
        "about" if variant.checkpoint.uncoordinated or known.round_s is None else "at most",
    )


def _round(known: Known) -> Figure:
    if known.now.checkpoint.uncoordinated:
        return unknown("no round is taken now")
    seconds = known.round_s
    return (
        unknown("no checkpoint was seen from its announcement until it was complete")
        if seconds is None
        else measured(seconds, "the newest checkpoint")
    )


def _total_now(known: Known) -> Figure:
    progress = known.seen.progress
    if progress is None:
        return unknown("the driver has said nothing yet")
    batches = max(0, progress.horizon - progress.covers.oldest)
    return measured(
        batches * known.now.batch_interval_s,
        f"{batches} batches behind the newest checkpoint, now, * batch.interval",
    )


def _total(known: Known, variant: StreamTopology) -> Figure:
    if variant.checkpoint.eventual:
        return unknown(SLOTS)
    longest = max(reach_of(known, variant).values(), default=0.0)
    return derived(longest, reach_text(variant, known), "about")
