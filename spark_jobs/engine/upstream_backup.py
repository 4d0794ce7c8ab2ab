"""Whether a lost partition begins anew and is fed by what its upstreams keep (`availability: upstream-backup`, or a standby
that is lost with its partition), so that nothing of it is read from a store.

Output for a target is kept until it is the *cause* of nothing that is still wanted.  Where all targets of a partition have
applied batch `low`, and its sink shows it, its output from `low + 1` on is wanted, and that depends on no input before
`oldest_needed(low + 1)`; where only the state says it, on none before what the partition has said of batch `low`, or of
one before that (`oldest_needed_behind`, in each report).  So what upstreams may forget is one number for each partition
and job (Hwang et al., "High-Availability Algorithms for Distributed Stream Processing", sections 5.2 and 5.2.1: level-1
acknowledgements and queue trimming by cause; indicators on tuples are not needed, as the number is one of batches).  A lost
partition is installed behind the cause with its initial state, and steps up to `low` without giving anything: what it makes
there may differ from what it gave then.

For an operator with standbys this is the next best where both copies are lost, and only what is no older than the checkpoint
is taken: senders keep nothing of what that covers, and `reprise.spark_jobs.engine.standbys` comes first.

Invariants: what a partition gives from `low + 1` on is what it gave before, or would have given, and nobody is given
anything else.  One whose upstreams do not have what it needs is restored from the checkpoint.  No batch at which a
checkpoint is being taken is passed before `low`.  docs/decisions/0042-upstream-backup.md,
docs/decisions/0069-both-copies-are-lost.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.node.command import Install, Report
from reprise.spark_jobs.topology import StreamTopology, Topology, Upstream, make_operator
from reprise.spark_jobs.topology.availability import backed_beside_standbys
from reprise.spark_jobs.topology.guarantees import require_an_oldest_input, with_an_oldest_input

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine
    from reprise.spark_jobs.engine.engine_spec import EngineSpec

log = logging.getLogger("reprise.engine")

Position = Callable[[str], int]

_STATE_IS_GONE = (FailureKind.NODE_LOST, FailureKind.STATE_LOST)


@dataclass(slots=True)
class UpstreamBackup:
    """The upstream backups of one driver's life."""

    resource: StreamTopology
    topology: Topology
    problems: list[str]
    """Where trouble is said."""
    wanted: frozenset[str] = frozenset()
    """Partitions of operators with that mode."""
    spare: frozenset[str] = frozenset()
    """Partitions of operators with standbys that are fed again where both copies are lost, from no earlier than the
    checkpoint."""
    able: frozenset[str] = frozenset()
    """Those of both whose code here says on what input they depend."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """Each of these that is at work, or has lost nothing but its state -> the last batch of its input on which nothing
    depends that could still be wanted of it, also where its readers are lost with it and go on where their standbys are."""
    _operators: Mapping[str, Operator] = field(default_factory=dict)
    _said: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Operator -> the greatest batch of which it has said on what its output depends, and what it said."""
    _by_state: frozenset[str] = frozenset()
    """Operators of which only the state says how far back they reach."""
    _reach: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Partition of such an operator -> batches, ascending, each with the first batch of input on which output behind it
    depends."""
    _least: dict[str, int] = field(default_factory=dict)
    """The same partitions -> the last batch of their output that was wanted no more when this was looked at last."""
    _shown: dict[str, int] = field(default_factory=dict)
    """Those with a sink -> the last batch that is known to be shown."""
    _lost: set[str] = field(default_factory=set)
    """Those of which nothing but the state is gone."""
    _begun: dict[str, Install] = field(default_factory=dict)
    """Those that are being installed, fed by their upstreams."""
    _forgotten: dict[str, int] = field(default_factory=dict)
    """Each of `able` -> the last batch of its input that senders were told they may forget."""
    _dropped: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Node -> partitions to which it cannot send what follows `_forgotten`, with the batch behind which it can."""

    def __post_init__(self) -> None:
        backed = {o.name for o in self.resource.operators if o.backed_upstream}
        beside = backed_beside_standbys(self.resource)
        if not backed | beside:
            return
        self.wanted = self._partitions(backed)
        try:
            operators = {o.name: make_operator(o) for o in self.resource.operators}
            require_an_oldest_input(self.resource, operators)
        except Exception as error:  # user code raises what it likes
            if backed:
                self.problems.append(f"no upstream backup, all is restored from checkpoints: {error}")
            return
        beside = with_an_oldest_input(operators, beside)
        self._operators = {name: operators[name] for name in backed | beside}
        self._by_state = frozenset(n for n, operator in self._operators.items() if operator.reaches_by_state)
        self.spare = self._partitions(beside)
        self.able = self.wanted | self.spare

    def _partitions(self, operators: Set[str]) -> frozenset[str]:
        return frozenset(p.id for p in self.topology.partitions.values() if p.place.operator in operators)

    # -- what is seen --------------------------------------------------------------------------------------------------

    def loses(self, partition: str, failure: Failure, shown: int | None) -> None:
        """A partition is not at work any more, which had shown everything up to batch `shown`."""
        self._begun.pop(partition, None)
        if partition not in self.able:
            return
        if shown is not None:
            self._shown[partition] = max(shown, self._shown.get(partition, 0))
        if failure.kind in _STATE_IS_GONE:
            self._lost.add(partition)
        else:
            self._lost.discard(partition)

    def leave(self, partitions: Set[str]) -> None:
        """Partitions go back to a checkpoint, or are restored from it; not those that are fed again: what their sinks have
        shown counts if they are lost once more before they are as far."""
        for partition in partitions:
            self._begun.pop(partition, None)
            self._shown.pop(partition, None)
            self._reach.pop(partition, None)
        self._lost -= partitions

    def works(self, partition: str) -> None:
        """A partition was installed."""
        self._begun.pop(partition, None)

    def heard(self, node: str, report: Report, installation: Mapping[str, str], newest: int) -> None:
        """What a node does not keep any more, or never had; and how far back its partitions reach.  `installation`: that of
        each which is at work; `newest`: the batch of the newest checkpoint, behind which all begin that come from it."""
        if not self.able:
            return
        self._dropped[node] = report.dropped
        for partition, (batch, oldest) in report.oldest.items():
            if report.installed.get(partition) == installation.get(partition, ""):
                self._reaches(partition, batch, oldest, newest)

    def _reaches(self, partition: str, batch: int, oldest: int | None, newest: int) -> None:
        name = self.topology.partitions[partition].place.operator
        said = self._reach.setdefault(partition, [])
        if oldest is None:
            self._gives_up(name, f"oldest_needed_behind of {partition} says no batch")
        elif (before := max((o for b, o in said if b <= batch), default=0)) > oldest:
            reason = f"oldest_needed_behind of {partition} is {oldest} behind batch {batch}, and was {before}"
            self._gives_up(name, reason)
        else:
            said[:] = [(b, o) for b, o in said if b < batch] + [(batch, oldest)]
            low = min(newest, self._least.get(partition, 0))
            known = max((b for b, _ in said if b <= low), default=0)
            said[:] = [(b, o) for b, o in said if b >= known]

    # -- what is told --------------------------------------------------------------------------------------------------

    def look(self, engine: Engine, living: Collection[str]) -> None:
        """Before a job: what each partition would need.  One that is set aside is restored from the checkpoint when
        it comes back: nothing but what that needs is kept for it."""
        if not self.able:
            return
        for node in self._dropped.keys() - set(living):
            del self._dropped[node]
        standbys, working = engine.standbys, engine.positions
        ready = standbys.ready(engine.punctuations.newest).keys() & working.keys()
        # a reader may be lost at the same time, and goes on where its standby is then
        copies = {p: standbys.goes_on_at(engine, p) for p in ready}
        start = _where(engine, engine.desired, frozenset(), {}, copies)
        present = working.keys() | self._lost
        causes = {p: self._cause(p, low) for p, low in self._lows(engine, start) if p in present}
        self.causes = {p: cause for p, cause in causes.items() if p in self.able}
        # nothing may have been kept of their input up to here
        self._forgotten |= dict.fromkeys(self.able - present, engine.horizon)

    def covered(self, covered: Positions, positions: Mapping[str, int]) -> Positions:
        """What senders may forget, of what a restoration from checkpoints does not need: to be fed again, a partition may
        need more.  What is told is remembered."""
        least = {
            p: covered.of(p) if p in self.spare else min(cause, positions.get(p, cause), covered.of(p))
            for p, cause in self.causes.items()
        }
        for partition, upto in least.items():
            self._forgotten[partition] = max(upto, self._forgotten.get(partition, 0))
        low = {p: upto for p, upto in least.items() if upto < covered.of(p)}
        return Positions(covered.everybody, {**covered.others, **low}) if low else covered

    def install(self, partition: str) -> Install | None:
        """How a partition begins that is fed by its upstreams; None: it is restored."""
        return self._begun.get(partition)

    def ready(self, engine: Engine) -> frozenset[str]:
        """Partitions that could be fed again if they, and nothing else, were lost now, or that are lost and can be; of those
        with standbys only what is lost, as nobody can say of the others which of their copies will be.  Too few for a moment
        where a reader's passive standby is new: causes reckon with its promotion, and what that would need may have been
        given up before; until it has caught up nobody counts who could be fed as long as the reader itself is at work."""
        kept = {p for p, cause in self.causes.items() if p in self.able and self._kept(p) <= cause}
        newest = engine.punctuations.newest
        kept = {p for p in kept if p not in self.spare or (p in self._lost and self.causes[p] >= newest)}
        kept -= engine.failed.keys() - self._lost  # since the last job
        # what waits for a checkpoint would be lost with it: its sink has not shown what it has applied
        waiting = {node for node, batches in engine.staged.items() if batches}
        kept -= {
            p for p in kept & self.topology.queries.keys() if engine.desired.assignment.get(p) in waiting
        }
        if kept and (
            missing := (self.topology.partitions.keys() - engine.positions.keys()) | engine.installing
        ):
            parts = self.topology.partitions
            kept = {p for p in kept if not any(u.partition in missing for u in parts[p].upstream)}
        return frozenset(kept)

    # -- what is decided -----------------------------------------------------------------------------------------------

    def decided(
        self,
        engine: Engine,
        desired: EngineSpec,
        installs: Set[str],
        back: Set[str],
        promoted: Mapping[str, int],
    ) -> Mapping[str, Install]:
        """How those of `installs` begin that can be fed by their upstreams; `back`: who goes back to a checkpoint, lost ones
        that are restored among them; `promoted`: where those go on that go to their standbys.  Nothing has changed yet."""
        chosen = set(self._lost & installs)
        while chosen:
            found = self._installs(engine, desired, installs | back, chosen, promoted)
            hungry = {
                p
                for p in chosen
                if p not in found or not self._fed(p, engine, desired, installs | back, found)
            }
            if not hungry:
                return found
            for partition in hungry:
                chosen -= self._too_early(partition, desired, found) or {partition}
        return {}

    def _too_early(self, partition: str, desired: EngineSpec, found: Mapping[str, Install]) -> set[str]:
        """Readers of a partition that begin before their checkpoint, and so ask more of it than that would."""
        readers = (t for down in self.topology.partitions[partition].downstream for t in down.targets)
        return {t for t in readers if t in found and found[t].position < desired.origin(t).position}

    def begins(self, found: Mapping[str, Install], installs: Set[str]) -> None:
        """Carry out what was decided: `installs` begin, from what is stored or out of their standbys, and those of `found`
        fed by their upstreams."""
        for partition in installs:
            self._begun.pop(partition, None)
        self._lost -= installs
        self._begun |= found
        for partition, install in found.items():
            log.warning(
                "event=upstream-backup partition=%s position=%d low=%d",
                partition, install.position, install.replays_to,
            )  # fmt: skip

    def _installs(
        self,
        engine: Engine,
        desired: EngineSpec,
        anew: Set[str],
        chosen: Set[str],
        promoted: Mapping[str, int],
    ) -> dict[str, Install]:
        """Where each of `chosen` begins; those that read no other of them come first: what one needs others must give."""
        found: dict[str, Install] = {}
        start = _where(engine, desired, anew, found, promoted)
        for partition, low in self._lows(engine, start, chosen):
            cause = self._cause(partition, low)
            if partition in self.spare and cause < desired.origin(partition).position:
                continue  # the checkpoint is newer, and nothing is kept for it from before that
            if partition in self.able:  # until its code raises
                found[partition] = Install(cause, replays_to=low)
        return {p: install for p, install in found.items() if p in self.able}

    def _fed(
        self,
        partition: str,
        engine: Engine,
        desired: EngineSpec,
        anew: Set[str],
        found: Mapping[str, Install],
    ) -> bool:
        """Whether all that a partition reads can give what follows the position at which it is to begin."""
        position, kept = found[partition].position, self._kept(partition)
        for upstream in self.topology.partitions[partition].upstream:
            u = upstream.partition
            if u in found:
                since = _goes_on_at(found[u].replays_to or 0, upstream.feedback)
            elif (
                u in anew or u not in engine.positions
            ):  # its snapshot has its last output over feedback edges
                since = desired.origin(u).position
            elif u in engine.installing:
                since = self._installed_gives(engine, upstream)
            else:
                since = kept
            if since > position:
                return False
        return True

    def _installed_gives(self, engine: Engine, upstream: Upstream) -> int:
        """The least position of a reader that can be given what follows by a partition that is being installed."""
        u = upstream.partition
        if (begun := self._begun.get(u)) is not None:
            return _goes_on_at(begun.replays_to or 0, upstream.feedback)
        restored = engine.standbys.install(u) is None
        return engine.positions[u] if restored else _goes_on_at(engine.positions[u], upstream.feedback)

    def _kept(self, partition: str) -> int:
        """What follows this batch can be had of everybody at work that a partition reads."""
        dropped = (there.get(partition, 0) for there in self._dropped.values())
        return max(self._forgotten.get(partition, 0), *dropped, 0)

    # -- what is needed ------------------------------------------------------------------------------------------------

    def _lows(
        self, engine: Engine, start: Position, only: Collection[str] | None = None
    ) -> Iterator[tuple[str, int]]:
        """Each partition, readers before those that they read, with the last batch of its output that is wanted of it no
        more.  `start`: where each goes on; it is asked when a partition's turn comes.  Those that read over feedback edges
        may have theirs later: one that begins further back then is not `_fed`."""
        open_at = min(engine.punctuations.open, default=None)
        poisoned = {p for p, failure in engine.failed.items() if failure.is_poison}
        least: dict[tuple[tuple[str, ...], bool], int | None] = {}
        for partition in reversed(self.topology.order):
            if partition not in self.able or (only is not None and partition not in only):
                continue
            lows = list[int]()
            for down in self.topology.partitions[partition].downstream:
                if (edge := (down.targets, down.feedback)) not in least:
                    least[edge] = min((start(t) for t in down.targets if t not in poisoned), default=None)
                if (one := least[edge]) is not None:  # over a feedback edge it needs the batch at which it is
                    lows.append(max(0, one - 1) if down.feedback else one)
            if partition in self.topology.queries:
                lows.append(max(engine.positions.get(partition, 0), self._shown.get(partition, 0)))
            low = min(lows, default=start(partition))
            # it stores itself there, with what all behind it follows from
            yield partition, low if open_at is None else min(low, open_at - 1)

    def _cause(self, partition: str, low: int) -> int:
        """The last batch of its input on which no output behind batch `low` depends."""
        name = self.topology.partitions[partition].place.operator
        if name in self._by_state:
            self._least[partition] = low
            said = max(
                (oldest for batch, oldest in self._reach.get(partition, ()) if batch <= low), default=0
            )
            return max(0, min(said, low + 1) - 1)
        try:
            oldest = self._operators[name].oldest_needed(low + 1)
            if oldest is None:
                raise ValueError(f"oldest_needed({low + 1}) is None")
            batch, before = self._said.get(name, (0, 0))
            if low + 1 >= batch:
                if oldest < before:  # what was dropped, or has not been fed again, is needed after all
                    raise ValueError(
                        f"oldest_needed({batch}) is {before}, and of batch {low + 1} it is {oldest}"
                    )
                self._said[name] = low + 1, oldest
            return max(0, min(oldest, low + 1) - 1)
        except Exception as error:  # user code raises what it likes
            self._gives_up(name, str(error))
            return 0

    def _gives_up(self, name: str, reason: str) -> None:
        """Nobody knows what to keep for an operator: all of its partitions come from checkpoints from now on."""
        gone = {p for p in self.able if self.topology.partitions[p].place.operator == name}
        if gone:
            self.able -= gone
            self.problems.append(f"{name}: no upstream backup, it is restored from checkpoints: {reason}")


def _goes_on_at(batch: int, feedback: bool) -> int:
    """The least position of a reader that can go on with output from behind `batch`: over a feedback edge it reads the batch
    at which it is, and at the beginning none."""
    return batch + 1 if feedback and batch else batch


def _where(
    engine: Engine,
    desired: EngineSpec,
    anew: Set[str],
    found: Mapping[str, Install],
    promoted: Mapping[str, int],
) -> Position:
    """Where each partition goes on: `anew` are installed, or go back; those in `found` begin where that says, and those that
    are `promoted` where their standbys are, which may be behind them."""

    def start(partition: str) -> int:
        if (install := found.get(partition)) is not None:
            return install.position
        known = [at[partition] for at in (engine.positions, promoted) if partition in at]
        return desired.origin(partition).position if partition in anew or not known else min(known)

    return start
