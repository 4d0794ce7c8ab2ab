"""Whether a lost partition is restored, or begins anew behind batches that nobody makes again (`availability: amnesia`).

The driver decides when it installs the partition, on what the hosts of its readers have said since it was lost, and writes
the decision down before any host hears of it; docs/decisions/0035-batches-that-are-skipped.md says why in this order.
Invariant: a partition of which it is not known what each of its readers has applied is restored from the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.spans import Span, Spans, behind, joined
from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.errors import NotYetError
from reprise.spark_jobs.node.command import Install, Report
from reprise.spark_jobs.state.skips import Skip, SkipRecords
from reprise.spark_jobs.topology import StreamTopology, Topology
from reprise.spark_jobs.topology.binding import able_to_skip, gaps_that_end
from reprise.spark_jobs.topology.guarantees import last_marked

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine

log = logging.getLogger("reprise.engine")

MOST_WAITS, MOST_WAIT_S = 50, 15.0
"""So many jobs, and seconds, are waited for readers that have not spoken; then what was asked for is restored."""

FORGOTTEN = frozenset({FailureKind.NODE_LOST, FailureKind.STATE_LOST})
"""Failures by which a partition's state is gone, and nothing else is wrong with it."""


@dataclass(slots=True)
class Skipping:
    """The skips of one driver's life."""

    resource: StreamTopology
    topology: Topology
    records: Callable[[], SkipRecords]
    """Made where it is needed: most topologies skip nothing."""
    problems: list[str]
    """Where trouble is said."""
    able: frozenset[str] = frozenset()
    """Partitions that may begin anew."""
    skips: tuple[Skip, ...] = ()
    """All that were carried out; they are on record."""
    _lost: dict[str, dict[str, int]] = field(default_factory=dict)
    """Partition that is lost -> its readers, with the last of its batches that each has applied."""
    _shown: dict[str, int] = field(default_factory=dict)
    """The same partitions -> the last batch that they were known to have shown."""
    _anew: dict[str, Skip] = field(default_factory=dict)
    """Partitions that are being installed with their initial state."""
    _decided: dict[str, Skip] = field(default_factory=dict)
    """Those that are on record and not carried out: no host hears of them, and another decision may withdraw them."""
    _known: dict[str, int] = field(default_factory=dict)
    """Partitions that were lost -> the last batch that they were known to have shown, of all that were."""
    _asked: dict[str, str] = field(default_factory=dict)
    """Partitions that somebody asked to let begin anew, and that are not at work since -> the id of that wish."""
    _begun: dict[str, str] = field(default_factory=dict)
    """Partitions that were asked for and are being installed -> the id of that wish."""
    _obeyed: dict[str, str] = field(default_factory=dict)
    """The last wish for each partition that is done with: it has been at work since."""
    refused: dict[str, str] = field(default_factory=dict)
    """Partitions that somebody asked to let begin anew, and that are restored instead -> the id of that wish."""
    _waits_since: float = 0.0
    """When it was not taken over first for that."""
    _waited: int = 0
    """How often the desired state was not taken over yet, as readers of a partition that was asked for had not spoken."""
    _operators: Mapping[str, Operator] = field(default_factory=dict)
    """An instance of each operator, to ask what its output depends on."""
    _doubtful: bool = False
    """It is not known whether the record has what was written last."""

    def __post_init__(self) -> None:
        forgetful = {o.name for o in self.resource.operators if o.forgetful}
        try:
            if forgetful:
                self._operators = gaps_that_end(self.resource)
        except Exception as error:  # user code raises what it likes
            self.problems.append(f"no batch is skipped, all is restored from checkpoints: {error}")
            return
        self.able = frozenset(
            p.id for p in self.topology.partitions.values() if forgetful and p.place.operator in forgetful
        )

    def begin(self) -> None:
        """Take over what earlier drivers have skipped, also where nothing may be skipped any more, as it is replayed.
        StoreError: it has not begun."""
        records = self.records()
        found = records.read()
        self.skips = found or ()
        if self.able or found is not None or records.follows:
            # else a driver before this one, frozen until now, could write the newest, also where nobody has skipped yet
            records.begin(self.skips)

    # -- what is seen --------------------------------------------------------------------------------------------------

    def loses(self, partition: str, failure: Failure, position: int | None) -> None:
        """A partition is not at work any more, which was at `position`."""
        self.leaves(partition)
        if position is not None:
            self._known[partition] = max(position, self._known.get(partition, 0))
        if partition in self.able and failure.kind in FORGOTTEN and position is not None:
            self._lost[partition], self._shown[partition] = {}, position

    def leaves(self, partition: str) -> None:
        """A partition is not where it was: what is known of it does not count."""
        self._lost.pop(partition, None)
        self._shown.pop(partition, None)
        self._anew.pop(partition, None)
        self._begun.pop(partition, None)
        for readers in self._lost.values():
            readers.pop(partition, None)

    def heard(self, ordered: Collection[str], report: Report) -> None:
        """What readers on one node have applied of partitions that are sealed."""
        for partition, readers in report.stepped.items():
            if partition in self._lost:
                self._lost[partition].update({t: k for t, k in readers.items() if t in ordered})

    def works(self, partition: str) -> None:
        """A partition was installed."""
        self._anew.pop(partition, None)
        if partition in self._begun:
            self._obeyed[partition] = self._begun.pop(partition)

    # -- what is told --------------------------------------------------------------------------------------------------

    @property
    def sealed(self) -> tuple[str, ...]:
        """Partitions of which nothing more is taken in."""
        return tuple(sorted(self._lost))

    def told(self, oldest: int) -> tuple[Skip, ...]:
        """Skips that matter for who is behind batch `oldest`."""
        return tuple(skip for skip in self.skips if skip.last > oldest)

    def install(self, partition: str) -> Install | None:
        """How a partition begins anew; None: it is restored."""
        skip = self._anew.get(partition)
        return None if skip is None else Install(skip.until, shown=skip.shown)

    def skipped(self, since: int) -> dict[str, Spans]:
        """Partition -> batches that some reader was stepped through without it, of all that end behind batch `since`."""
        found: dict[str, list[Span]] = {}
        for skip in self.skips:
            if skip.until > since:
                first = min(skip.after.values(), default=skip.shown) + 1
                found.setdefault(skip.partition, []).append((first, skip.until))
        return {partition: joined(spans) for partition, spans in found.items()}

    def marked(self, since: int) -> dict[str, Spans]:
        """Output partition -> batches that may lack rows, of all spans of them that end behind batch `since`."""
        found: dict[str, list[Span]] = {}
        for skip in self.skips:
            for output, span in skip.marked.items():
                found.setdefault(output, []).append(span)
        spans = ((output, joined(every)) for output, every in found.items())
        return {output: late for output, every in spans if (late := behind(every, since))}

    # -- what is decided -----------------------------------------------------------------------------------------------

    def asks(self, engine: Engine, anew: Mapping[str, str]) -> None:
        """Somebody wants these partitions to begin anew, each by a wish with an id: what has come of them is sealed, so that
        their readers say what they have applied.  What `availability: amnesia` would be refused for is refused."""
        asked = {
            p: wish for p, wish in anew.items() if self._obeyed.get(p) != wish and p not in engine.positions
        }
        self.refused = {p: wish for p, wish in self.refused.items() if anew.get(p) == wish}
        names = frozenset(
            self.topology.partitions[p].place.operator for p in asked.keys() & self.topology.partitions.keys()
        )
        if asked.keys() != self._asked.keys() and asked:
            self._waited = 0
            try:
                self._operators = able_to_skip(self.resource, names)
            except Exception as error:  # user code raises what it likes
                self._refuse(asked, str(error))
                self._obeyed |= asked
                asked = {}
        self._asked = asked
        for partition in self._lost.keys() - asked.keys() - self.able:  # nobody asks for it any more
            del self._lost[partition], self._shown[partition]
        for partition in asked.keys() - self._lost.keys():
            self._lost[partition] = {}
            # output up to a complete checkpoint is shown, whoever has shown it
            self._shown[partition] = max(self._known.get(partition, 0), engine.punctuations.newest)

    def decide(
        self, engine: Engine, anew: Mapping[str, str], installs: Set[str], back: Set[str], stays: Set[str]
    ) -> None:
        """Decide which of those that are to be installed, and do not go `back`, begin anew, and write it down; `stays`: who
        is at work and goes on; `anew`: who was asked to.  `installs_now` and `installed` carry it out; where the caller
        fails before them, the next call decides again, and withdraws what it does not choose.  Raises what
        `SkipRecords.write` raises, and NotYetError while readers have still to be heard; nothing is to be installed then,
        and this is called again."""
        if anew or self._asked:  # by, or taken back by, a desired state that this driver has not seen
            self.asks(engine, anew)
        if not (self.able or self._asked or self._decided or self._doubtful):
            return
        chosen = self._eligible(engine, installs - back, stays)
        self._wait_for_readers(engine, self._asked.keys() & installs - chosen, back, stays)
        decided = self._decided
        if chosen != decided.keys():
            until = _until(engine, max((self._shown[p] for p in chosen), default=0))
            decided = self._skips(chosen, until, stays)
        if decided != self._decided or self._doubtful:
            self._doubtful = True
            kept = tuple(skip for skip in self.skips if skip.last > engine.ledger.trimmed)
            self.records().write((*kept, *decided.values()))
            self._doubtful, self.skips, self._decided = False, kept, decided

    def _skips(self, chosen: Set[str], until: int, stays: Set[str]) -> dict[str, Skip]:
        """A skip of each partition that was chosen; none where user code raises, and then those asked for are refused."""
        try:
            return {p: self._skip(p, until, stays, chosen) for p in sorted(chosen)}
        except Exception as error:  # user code, asked what its output depends on, raises what it likes
            self.problems.append(f"no batch is skipped, all is restored from checkpoints: {error}")
            if asked := chosen & self._asked.keys():
                self._refuse({p: self._asked[p] for p in asked}, str(error))
            return {}

    def _wait_for_readers(self, engine: Engine, asked: Set[str], back: Set[str], stays: Set[str]) -> None:
        """NotYetError while those who were asked for may still begin anew, as what reads them stays."""
        if not asked:
            return
        why = "what reads it does not stay, or the driver is to end"
        hopeful = not (engine.drain.asked or asked & back)
        if hopeful and all(t in stays or t in asked for p in asked for t in self._readers(p)):
            self._waits_since = self._waits_since if self._waited else engine.clock()
            if self._waited < MOST_WAITS or engine.clock() - self._waits_since < MOST_WAIT_S:
                self._waited += 1
                raise NotYetError(
                    f"what reads {', '.join(sorted(asked))} has still to say what it has applied"
                )
            why = "what reads it has not said what it has applied"
        self._refuse({p: self._asked[p] for p in asked}, why)

    def _refuse(self, asked: Mapping[str, str], why: str) -> None:
        """Say that these are restored although somebody has asked, each by a wish, to let them begin anew."""
        self.refused |= asked
        self.problems.append(f"not skipped, but restored from checkpoints: {', '.join(sorted(asked))}: {why}")

    def installs_now(self, installs: Set[str]) -> None:
        """Nothing can keep `installs` from being ordered any more: those that were decided begin anew."""
        for partition in installs & self._anew.keys():
            del self._anew[partition]
        self._anew |= self._decided
        for partition in self._decided:  # refused once, and asked for again with the same wish
            self.refused.pop(partition, None)

    def installed(self, engine: Engine) -> None:
        """What was decided is being carried out: checkpoints that those who begin anew will not pass are given up."""
        for skip in self._decided.values():
            log.warning(
                "event=batches-skipped partition=%s until=%d after=%s outputs=%d",
                skip.partition, skip.until, min(skip.after.values(), default=skip.until), len(skip.marked),
            )  # fmt: skip
        self.skips, self._decided = (*self.skips, *self._decided.values()), {}
        for partition in self._lost.keys() & engine.positions.keys():
            del self._lost[partition], self._shown[partition]
        if self._anew:
            engine.punctuations.give_up(max(skip.until for skip in self._anew.values()))
        self._begun |= {p: wish for p, wish in self._asked.items() if p in engine.positions}
        self.asks(engine, engine.desired.anew)

    def _eligible(self, engine: Engine, installs: Set[str], stays: Set[str]) -> frozenset[str]:
        """The greatest set of lost partitions each reader of which stays and has reported, or is in the set."""
        if engine.drain.asked:
            return frozenset()
        chosen = self._lost.keys() & installs & (self.able | self._asked.keys())
        ends = engine.final is not None and engine.begun >= engine.final
        if (
            ends or engine.begun <= engine.punctuations.newest
        ):  # what is restored has next to nothing to make again
            chosen &= self._asked.keys()
        while True:
            wrong = {
                p
                for p in chosen
                if not all(self._ready(engine, p, t, stays) or t in chosen for t in self._readers(p))
            }
            if not wrong:
                return frozenset(chosen)
            chosen -= wrong

    def _ready(self, engine: Engine, partition: str, reader: str, stays: Set[str]) -> bool:
        """Whether a reader goes on, and has handed on all that it has applied: else upstreams would have to send again."""
        applied = self._lost[partition].get(reader)
        return reader in stays and applied is not None and engine.positions.get(reader, -1) >= applied

    def _readers(self, partition: str) -> tuple[str, ...]:
        return tuple(t for down in self.topology.partitions[partition].downstream for t in down.targets)

    def _needed(self, partition: str, chosen: Set[str]) -> int | None:
        """The last batch of a partition that somebody asked to skip which anybody needs, also in a replay: what reads it has
        applied no later one of it, nor has shown what came of one."""
        if partition not in self._asked:
            return None
        below = self.topology.downstream_of([partition]) & chosen
        return max(max((*self._lost[p].values(), self._shown[p])) for p in below)

    def _skip(self, partition: str, until: int, stays: Set[str], chosen: Set[str]) -> Skip:
        after = {t: k for t, k in self._lost[partition].items() if t in stays}
        last = last_marked(
            self.resource, self._operators, self.topology.partitions[partition].place.operator, until
        )
        marked = {}
        for output, query in self.topology.queries.items():
            if partition not in query.partitions:
                continue
            firsts = [k + 1 for t, k in after.items() if t in query.partitions]
            if output == partition:
                firsts.append(self._shown[partition] + 1)
            first = min(firsts, default=until + 1)
            if (end := last[self.topology.partitions[output].place.operator]) >= first:
                marked[output] = first, end
        needed = self._needed(partition, chosen)
        return Skip(partition, until, after, self._shown[partition], marked, needed)


def _until(engine: Engine, shown: int) -> int:
    """The last batch that is skipped: the newest that is due, or was shown, but not the one that ends the stream, which
    everybody has to store."""
    last = max(engine.begun, shown)
    return last if engine.final is None else min(last, engine.final - 1)
