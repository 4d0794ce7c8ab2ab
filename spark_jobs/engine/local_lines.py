"""Snapshots of single partitions, the line that a total failure would take, and the line that a loss takes.

Partitions store themselves by their own clocks (`reprise.spark_jobs.engine.clocks`).  A **line** chooses a snapshot for
each partition that goes back; `reprise.algorithms.recovery_line` finds it, for any set of lost partitions.  Two are asked
for:

- that of a total failure, each time something new is stored.  Its manifest is the record by which a new driver goes on.
  It is named by its least position: everything up to there is stored for everybody, as with a global checkpoint of that
  number.  Only once the manifest is written do senders and sources forget what it covers: a driver that dies before
  leaves the line before, and all that this one needs.
- that of the partitions that are to be restored, when the coordinator says where, with what those at work still hold.
  Who is at work goes back only where it no longer holds what they need.

Invariants: no line that is found later is below the one on record, unless a snapshot turns out to be damaged; files are
removed only when neither the kept lines, nor a partition that is being restored, nor a later line can name them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reprise.algorithms.positions import Positions
from reprise.algorithms.recovery_line import Edge, Impossible, World, by_end, line
from reprise.spark_jobs.engine.acknowledged import snapshot_of
from reprise.spark_jobs.engine.arrival import of_one_count
from reprise.spark_jobs.engine.clocks import Clocks
from reprise.spark_jobs.engine.restore_point import RestorePoint
from reprise.spark_jobs.errors import CheckpointError, DamagedError
from reprise.spark_jobs.node.command import Ack, Install, Report
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.snapshot import Kind, Snapshot
from reprise.spark_jobs.topology import StreamTopology, Topology, is_deterministic
from reprise.spark_jobs.topology.guarantees import behind

log = logging.getLogger("reprise.engine")

RECORD_S = 1.0
"""Between two records of the line at least."""
SHARE = 20
"""So many times as long as a record took nothing is recorded again: 5 % of the driver's time at most."""

Line = Mapping[str, Snapshot]


@dataclass(slots=True)
class LocalLines:
    """The snapshots of one stream.  `clock`: monotonic seconds."""

    resource: StreamTopology
    topology: Topology
    restore_point: RestorePoint
    clock: Callable[[], float] = time.monotonic
    active: bool = field(init=False)
    """Whether partitions are restored from lines: always where each stores itself by its own clock; else while the newest
    checkpoint is a line that another protocol has left."""
    clocks: Clocks = field(init=False)
    replayable: frozenset[str] = field(init=False)
    """Partitions that make the same rows again."""
    snapshots: dict[str, tuple[Snapshot, ...]] = field(default_factory=dict)
    line: Line = field(default_factory=dict)
    """On record: what a total failure takes."""
    origins: dict[str, Snapshot] = field(default_factory=dict)
    """What each partition at work was restored from."""
    restored: dict[str, int] = field(default_factory=dict)
    """The positions of those, since something failed."""
    _last: dict[str, Snapshot] = field(default_factory=dict)
    """What each partition has stored last since it was restored: the next one may need its files, also while it
    is behind those that were stored before, or is left out of them."""
    taken: int = 0
    """Snapshots that were ever stored for this driver."""
    bytes_taken: int = 0
    """Bytes of their files."""
    forced: int = 0
    """How many of them messages have forced."""
    footprints: int = 0
    """Slots that were ever written into them, each as often as it was."""
    skipped: int = 0
    """Snapshots that lost partitions had and that were newer than the line that they went back to (CheckMate, Table III)."""
    _kept: dict[int, Line] = field(default_factory=dict)
    """The newest lines on record, by name."""
    _before: dict[str, Snapshot] = field(default_factory=dict)
    """On record beside the newest line: see `_before_of`."""
    _damaged: dict[int, Line] = field(default_factory=dict)
    """Lines on record of which a snapshot turned out to be damaged, or that cannot be gone on with for another reason."""
    _since: dict[str, int] = field(default_factory=dict)
    _pinned: Line = field(default_factory=dict)
    """Where a replay may differ: of the last rollback, those that were not installed yet."""
    _numbered_from: int = 0
    """In the order of arrival: the batch after which messages of this stream are numbered."""
    _begun: bool = False
    _news: bool = False
    _next_s: float = float("-inf")
    _edges: tuple[Edge, ...] = ()
    _index: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.active = self.resource.checkpoint.uncoordinated
        changing = _changing(self.resource) if self.active else frozenset[str]()
        self.clocks = Clocks(self.resource, self.topology, changing)
        self.replayable = frozenset()

    # -- what is stored ------------------------------------------------------------------------------------------------

    def begin(self, newest: int) -> None:
        """Take in the lines on record up to `newest`, once, before anything else.  StoreError: to be called again.
        SupersededError: a later driver has begun."""
        if self._begun:
            return
        parts, changing = self.topology.partitions, _changing(self.resource)
        self.replayable = frozenset(p.id for p in parts.values() if p.place.operator not in changing)
        self._edges = tuple(
            Edge(u.partition, p.id, 1 if u.feedback else 0) for p in parts.values() for u in p.upstream
        )
        self._index = by_end(self._edges)
        store, point = self.restore_point.store, self.restore_point
        names = [k for k in store.positions() if k <= newest][-self.resource.checkpoint.keep :]
        found, before, begun = dict[int, Line](), dict[str, Snapshot](), dict[int, int]()
        for name in names:
            try:
                manifest = point.manifest(name)
            except DamagedError as error:  # a line before it is taken, or after
                point.bad.add(name)
                point.problems.append(f"line {name} cannot be used: {error}")
                continue
            found[name] = {p: self._with_feedback(manifest.snapshot(p)) for p in parts}
            begun[name] = manifest.numbered_from
            # of an older line they may be gone
            before = {p: s for p, s in manifest.before.items() if p in parts and name == names[-1]}
        every = found
        found, self._numbered_from = of_one_count(self.resource, found, names, begun)
        self._damaged |= {name: every[name] for name in every.keys() - found.keys()}
        if found and len(self.replayable) < len(parts):
            self._make_own(max(found))
        initial = {p: Snapshot.round(p, 0) for p in parts}
        self._kept, self.line = found, found[max(found)] if found else initial
        for p in parts:
            known = [*([before[p]] if p in before else []), *(found[name][p] for name in sorted(found))]
            if not point.ledger.trimmed and not any(s.position == 0 for s in known):
                known = [initial[p], *known]
            self.snapshots[p] = _in_order(known)
        point.punctuations.newest, self._before = max(found, default=0), before
        self._begun = self.active = True

    def _make_own(self, name: int) -> None:
        """Record the line of an earlier driver once more before anything goes on from it.  That driver may still replace its
        record of this name, by a line of what it makes differently; what a later one has recorded counts before it."""
        manifest = self.restore_point.manifest(name)
        if manifest.apart:
            self.restore_point.complete(manifest)

    def _with_feedback(self, snapshot: Snapshot) -> Snapshot:
        """The file of a round has the partition's last batch over feedback edges, which its record does not say."""
        if snapshot.kind is not Kind.ROUND or not snapshot.position:
            return snapshot
        downstream = self.topology.partitions[snapshot.partition].downstream
        channels = {t: snapshot.position for d in downstream if d.feedback for t in d.targets}
        return replace(snapshot, channels=channels) if channels else snapshot

    def acknowledge(self, ack: Ack) -> None:
        """A partition has stored itself."""
        if not self.active or not self.resource.checkpoint.uncoordinated:
            return
        before = self.snapshots[ack.partition]
        stored = snapshot_of(ack, 1 + max((s.number for s in before), default=0))
        self.clocks.stored(ack.partition, stored.last)
        if any(_same(s, stored) for s in before):
            return  # a report that came twice
        self.snapshots[ack.partition] = _in_order((*before, stored))
        last = self._last.get(ack.partition, stored)
        if (stored.position, stored.sent) >= (
            last.position,
            last.sent,
        ):  # one that was stored late is not the last
            self._last[ack.partition] = stored
        self.taken += 1
        self.forced += ack.forced
        self.footprints += ack.footprints
        self.bytes_taken += 0 if stored.file is None else stored.file.size
        self._news = True

    def record(self) -> int | None:
        """Put the line of a total failure on record where it has moved; its name.  StoreError, SupersededError: as
        `CheckpointStore.complete`; tried again with the next job."""
        began = self.clock()
        if not self._news or began < self._next_s:
            return None
        found = self._total()
        self._next_s = began + RECORD_S
        if found is None or found == self.line:
            self._news = False
            return None
        name = min(s.position for s in found.values())
        if not name:
            return None  # somebody has not stored itself yet
        ledger = self.restore_point.ledger
        apart = {p: s for p, s in found.items() if s != Snapshot.round(p, name)}
        before = self._before_of(found, name)
        numbered = self._numbered_from if any(s.inputs for s in found.values()) else 0
        self.restore_point.complete(
            Manifest(name, apart, ledger.offsets(name), ledger.logs(name), before, numbered)
        )
        self.line, self._kept[name], self._news, self._before = found, found, False, before
        self._damaged.pop(name, None)
        ended = self.clock()
        self._next_s = max(began + RECORD_S, ended + SHARE * (ended - began))
        self.restore_point.punctuations.complete(name)
        log.info("event=line-recorded position=%d newest=%d", name, max(s.position for s in found.values()))
        return name

    def _before_of(self, found: Line, name: int) -> dict[str, Snapshot]:
        """What each partition had in the lines before this one, the newest that is another: a record of equal name replaces
        the one before, and one damaged snapshot would leave nothing but a line that may be much older.  None where rows may
        be made differently since."""
        if len(self.replayable) < len(self.topology.partitions):
            return {}
        last = {p: self.line[p] if self.line[p] != s else self._before.get(p) for p, s in found.items()}
        return {p: s for p, s in last.items() if s is not None and s != found[p] and s.position >= name}

    def prune(self, installing: Collection[str]) -> int:
        """Remove what no line needs any more; the oldest position that does.  StoreError, SupersededError."""
        keep = self.resource.checkpoint.keep
        begins = {p: [self.origins[p]] for p in installing if p in self.origins}
        # what a partition stores that was taken far back is not known here before its host says so
        for partition, s in self.origins.items():
            begins.setdefault(partition, []).append(self._last.get(partition, s))
        begun = [s for some in begins.values() for s in some]
        oldest = min([*sorted(self._kept)[-keep:], *(s.position for s in begun)])
        self._kept = {name: kept for name, kept in self._kept.items() if name >= oldest}
        named = {id(s): s for kept in (*self._kept.values(), self.line, self._before) for s in kept.values()}
        needed = _files((*named.values(), *begun))
        gone: list[str] = []
        anew = 0 if not self.restore_point.ledger.trimmed else -1  # whether the stream can begin again
        for partition, known in self.snapshots.items():
            least = self.line[partition].position
            stay = tuple(
                s
                for s in known
                if s.position >= least
                or s.position == anew
                or s == self._before.get(partition)
                or id(s) in named
                or s in begins.get(partition, ())
            )
            if len(stay) < len(known):
                gone += _files(s for s in known if s not in stay) - _files(stay) - needed
                self.snapshots[partition] = stay
        self.restore_point.store.remove_states(gone)
        named_now = (s for known in (*self.snapshots.values(), begun) for s in known)
        others = {path for s in named_now if s.file is not None for path in s.file.others}
        return self.restore_point.store.prune(keep, oldest, others)

    def replaced(self) -> None:
        """A global checkpoint is complete: nothing is restored from a line that another protocol has left."""
        self.active = self.resource.checkpoint.uncoordinated
        if not self.active:
            self._begun = False

    # -- what is restored ----------------------------------------------------------------------------------------------

    def take(self, wanted: Collection[str], living: Mapping[str, int], everything: bool) -> frozenset[str]:
        """Choose what `wanted` are restored from; who of the `living` (partition -> position) goes back with them.

        `everything`: all goes back, and what is not wanted now is restored later.  CheckpointError: no line is valid.
        """
        if not wanted and not everything:
            return frozenset()
        changing = len(self.replayable) < len(self.topology.partitions)
        if changing and not everything and not set(wanted) <= self._pinned.keys():
            everything = True  # what they made may be seen, and be made differently now
        chosen = self._chosen(wanted, living, everything, changing)
        back = frozenset(living.keys() & chosen.keys()) | (frozenset(living) if everything else frozenset())
        missing = {p: chosen[p] for p in (*wanted, *back)}
        if changing and everything:
            self._discard_behind(chosen)
            self._pinned = {p: s for p, s in chosen.items() if p not in missing}
            for partition, s in chosen.items():  # what came after it never was
                known = self.snapshots[partition]
                self.snapshots[partition] = tuple(k for k in known if k.position <= s.position)
        else:
            self._pinned = {p: s for p, s in self._pinned.items() if p not in missing}
        for partition, s in missing.items():
            self.skipped += sum(other.position > s.position for other in self.snapshots[partition])
            if s.position or partition in self.origins:  # else the stream begins
                self.restored[partition] = s.position
            self.origins[partition] = s
            self._last.pop(partition, None)
            self._since.pop(partition, None)
            self.clocks.installed(partition, s.last)
        if everything:
            self.clocks.forget()
        self.restore_point.installs = {**self.restore_point.installs, **dict(self._installs(missing))}
        log.info(
            "event=line-taken wanted=%d back=%d everything=%s oldest=%d skipped=%d snapshots=%d forced=%d",
            len(wanted), len(back), everything, min((s.position for s in missing.values()), default=0), self.skipped,
            self.taken, self.forced,
        )  # fmt: skip
        return back

    def _chosen(
        self, wanted: Collection[str], living: Mapping[str, int], everything: bool, changing: bool
    ) -> Line:
        if changing and not everything:
            return {p: self._pinned[p] for p in wanted}
        if not everything:
            lost = self.topology.partitions.keys() - living.keys()
            # those that have no place yet are chosen with the others, unless somebody at work would go back for them now
            found = line(self._world(living, frozenset()), lost)
            if isinstance(found, Impossible) or living.keys() & found.keys():
                absent = frozenset(lost - set(wanted))
                found = line(self._world(living, absent), lost - absent)
            if not isinstance(found, Impossible):
                return found
            self.restore_point.problems.append(
                f"no line is valid that leaves anybody at work ({_why(found)}): everything goes back to snapshots"
            )
        chosen = self._total()
        if chosen is None:
            raise self._none()
        return chosen

    def _installs(self, chosen: Line) -> Iterator[tuple[str, Install]]:
        for partition, s in chosen.items():
            since = None
            if self.topology.partitions[partition].is_source and s.channels:
                since = min(s.channels.values()) - 1
            file = None if s.file is None else s.file.to_json()
            sent = s.sent if s.kind is Kind.WINDOW_LOG else None
            numbered = bool(s.inputs)
            yield (
                partition,
                Install(s.position, file, watermark=s.watermark, since=since, sent=sent, numbered=numbered),
            )

    def _discard_behind(self, chosen: Line) -> None:
        """What was on record behind a line that everything goes back to is made differently now: a later driver must not
        take it together with what comes.  StoreError: nothing else has changed."""
        for name, kept in sorted((self._kept | self._damaged).items()):
            if any(s.position > chosen[p].position for p, s in kept.items()):
                self.restore_point.store.discard(name)
                self._kept.pop(name, None)
                self._damaged.pop(name, None)

    def condemn(self, partition: str, file: str = "") -> None:
        """The snapshot that it was being restored from is damaged: another line is taken with the next orders.  `file`: the
        one that is wrong, where that is known; no other snapshot that needs it is tried."""
        damaged = self.origins[partition]
        point = self.restore_point

        def spoilt_one(s: Snapshot) -> bool:
            return s == damaged or (bool(file) and s.file is not None and file in s.file.paths)

        known = self.snapshots[partition]
        self.snapshots[partition] = tuple(s for s in known if not spoilt_one(s))
        spoilt = {name: kept for name, kept in self._kept.items() if spoilt_one(kept[partition])}
        self._damaged |= spoilt
        self._kept = {name: kept for name, kept in self._kept.items() if name not in spoilt}
        if partition in self._before and spoilt_one(self._before[partition]):
            del self._before[partition]
        said = f"{partition}: its snapshot of batch {damaged.position} cannot be used"
        if more := sum(spoilt_one(s) and s != damaged for s in known):
            said += f", nor {more} of its others, which need {file}"
        if spoilt_one(self.line[partition]):
            found = self._total()
            if found is None:
                point.bad.add(point.punctuations.newest)
                point.problems.append(f"{said}, and no other line is valid: {self._none()}")
                return
            self.line, self._news = found, True
            name = point.punctuations.newest = min(s.position for s in found.values())
            said += f"; a total failure would go back to line {name}"
        if known := self.snapshots[partition]:
            said += f"; it goes back to batch {known[-1].position}, or further"
        point.problems.append(said)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _total(self) -> Line | None:
        """The line of a total failure; None: there is none."""
        if not all(self.snapshots.values()):
            return None
        found = line(self._world({}, frozenset()), self.topology.partitions)
        return None if isinstance(found, Impossible) else found

    def _none(self) -> CheckpointError:
        trimmed = self.restore_point.ledger.trimmed
        return CheckpointError(
            f"no line of snapshots is valid, and the stream cannot begin again: its input up to batch {trimmed} was given up"
            if trimmed
            else "no line of snapshots is valid"
        )

    def _world(self, living: Mapping[str, int], absent: frozenset[str]) -> World[Snapshot]:
        return World(
            self._edges,
            frozenset(),
            self.snapshots,
            living,
            _Floors(self, living),
            0,
            self.replayable,
            absent,
            self._index,
        )

    def floor(self, edge: Edge) -> int:
        """The first batch that the source of an edge, at work, still holds for its target."""
        covered = self.line[edge.target].position
        told = edge.need(max(covered, self._since.get(edge.source, 0)))
        began = self.origins.get(edge.source)
        return (
            told
            if began is None
            else max(told, min(began.channels.get(edge.target, began.first), began.first))
        )

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def covers(self) -> Positions:
        """Where each partition is stored in the line on record."""
        name = self.restore_point.punctuations.newest
        return Positions(name, {p: s.position for p, s in self.line.items() if s.position != name})

    def covered(self, positions: Mapping[str, int]) -> Positions:
        """What senders and sources may forget; `positions`: last batch that each partition at work has applied."""
        at = {p: min(s.position, positions.get(p, s.position)) for p, s in self.line.items()}
        ((common, _),) = Counter(at.values()).most_common(1)
        return Positions(common, {p: k for p, k in at.items() if k != common})

    @property
    def furthest(self) -> int:
        """The last batch that has left a trace in what was restored, or would be: it was released."""
        named = (*self.line.values(), *self.origins.values())
        sources = (p for p, part in self.topology.partitions.items() if part.is_source)
        from_sources = (s.inputs[p].taken for p in sources for s in named if p in s.inputs)
        return max((*(s.last for s in named), *from_sources), default=0)

    @property
    def dropped(self) -> int:
        """How many partitions at work no longer hold all output behind the line on record that others may need."""
        return len(self._since)

    def position(self, partition: str) -> int:
        """What it was restored from, or is to be."""
        return self.origins[partition].position

    def reads_from(self, partition: str) -> int:
        """A source may be asked for what follows this batch."""
        install = self.restore_point.installs.get(partition)
        return self.position(partition) if install is None or install.since is None else install.since

    def heard(self, ordered: Collection[str], report: Report) -> None:
        """What the partitions of a node hold."""
        for partition in ordered:
            if partition in report.since:
                self._since[partition] = report.since[partition]
            else:
                self._since.pop(partition, None)


class _Floors(Mapping[Edge, int]):
    """Floors, made when somebody asks: of the edges of a few lost partitions."""

    def __init__(self, lines: LocalLines, living: Mapping[str, int]) -> None:
        self._lines, self._living = lines, living

    def __getitem__(self, edge: Edge) -> int:
        if edge.source not in self._living:
            raise KeyError(edge)
        return self._lines.floor(edge)

    def __iter__(self) -> Iterator[Edge]:
        return (edge for edge in self._lines._edges if edge.source in self._living)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _in_order(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """Snapshots of one partition, oldest first, so that neither `position` nor `sent` falls.  Of several that say the same
    the last one counts.  One that is stored slot by slot may be older in its oldest slot and newer in its output than one of
    another installation: the one with the older slots is left out."""
    known = {(s.position, s.sent): s for s in snapshots}
    found = list[Snapshot]()
    for _, s in sorted(known.items(), reverse=True):
        if not found or s.sent <= found[-1].sent:
            found.append(s)
    return tuple(reversed(found))


def _files(snapshots: Iterable[Snapshot]) -> set[str]:
    """Every file without which one of these cannot be restored."""
    return {path for s in snapshots if s.file is not None for path in s.file.paths}


def _same(one: Snapshot, other: Snapshot) -> bool:
    return (one.position, one.file, one.channels) == (other.position, other.file, other.channels)


def _why(none: Impossible) -> str:
    return f"{none.edge.target} needs batch {none.batch} of {none.edge.source}"


def _changing(resource: StreamTopology) -> frozenset[str]:
    """Operators whose output may differ in a replay: those that are not deterministic, and all that read them; in the order
    of arrival all."""
    if resource.arrival:
        return frozenset(o.name for o in resource.operators)
    own = [o.name for o in resource.operators if not is_deterministic(o)]
    return frozenset(name for operator in own for name in behind(resource, operator))
