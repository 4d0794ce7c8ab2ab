"""Whether a topology can go on from a savepoint that has other numbers of partitions, and how.

A row falls to the partition hash(key columns) mod partitions of the operator that reads it, so what a partition has of a key
follows from the rows of that key alone, and moves with it (docs/decisions/0055-states-are-divided-by-key.md).  All here
follows from what the savepoint says of its topology and from the resource; the states themselves are divided in
`reprise.spark_jobs.state.redistribution`.

Invariant: whatever would put a part of a state where its rows do not come is refused, with the field and a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.spark_jobs.contract import Operator, Place
from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.state.savepoints import SavedStage
from reprise.spark_jobs.topology import OperatorSpec, StreamTopology, make_operator
from reprise.spark_jobs.topology.resource import Mode
from reprise.spark_jobs.topology.routing import hash_rows

_SAYS = frozenset(("state_keys", "split_state", "merge_states"))
Ways = Mapping[str, tuple[Mode, tuple[str, ...]]]
"""How rows of each input reach an operator."""
_OWN = frozenset(("initial", "step", "freeze", "freeze_pages", "restore"))


class How(StrEnum):
    """What becomes of the state of an operator."""

    NONE = "none"  # it has no state
    DIVIDED = "divided"  # each key goes to its new partition
    COPIED = "copied"  # all partitions have read the same rows, and have the same state
    SOURCE = "source"  # a source: it says itself who reads on what


@dataclass(frozen=True, slots=True)
class Routing:
    """How rows fall to the partitions of an operator; without columns all go to its only one."""

    by: tuple[str, ...]
    parallelism: int

    def targets(self, keys: pa.Table) -> npt.NDArray[np.int64]:
        """The index of the partition of each row.  RoutingError: a column is missing, or has no hash."""
        if self.parallelism == 1:
            return np.zeros(keys.num_rows, np.int64)
        return (hash_rows(keys, self.by) % np.uint64(self.parallelism)).astype(np.int64)

    def __str__(self) -> str:
        return f"by {', '.join(self.by)}" if self.by else "to one partition"


@dataclass(frozen=True, slots=True)
class Change:
    """One source or operator whose partitions, or whose rows' way to them, are not those of before."""

    name: str
    before: int
    now: int
    """Partitions."""
    how: How
    old: Routing | None = None
    new: Routing | None = None
    """Of a state that is divided."""

    def __str__(self) -> str:
        said = f"{self.name}: {self.before} partitions, now {self.now}"
        if self.how is How.DIVIDED and self.old is not None and self.new is not None:
            ways = str(self.new) if self.old.by == self.new.by else f"{self.new}, and was {self.old}"
            return f"{said}; its state is divided {ways}"
        return said + _SAID[self.how]


_SAID = {
    How.NONE: "; it has no state",
    How.COPIED: "; each gets the state, which is the same in all",
    How.SOURCE: "; what was read falls to those that read on",
    How.DIVIDED: "; its state is divided",
}


def rescaling(before: Sequence[SavedStage], now: StreamTopology) -> tuple[Change, ...]:
    """What changes for the sources and operators that both have, in the order of `now`; nothing: all partitions and their
    states stay as they are.  SpecError with everything that stands against it."""
    found, wrong = list[Change](), list[SpecError]()
    saved = {(stage.name, stage.is_source): stage for stage in before}
    for source in now.sources:
        old = saved.get((source.name, True))
        if old is not None and old.parallelism != source.parallelism:
            found.append(Change(source.name, old.parallelism, source.parallelism, How.SOURCE))
    for operator in now.operators:
        if (old := saved.get((operator.name, False))) is not None:
            try:
                changes = list(_changes(old, operator))
                if not changes:
                    _require_forwarded_alike(old, operator, before, now.operators)
                found += changes
            except SpecError as error:
                wrong += error.all
    for change in found:
        wrong += _in_cycle(change, [*before, *now.operators])
    raise_all(wrong)
    return tuple(found)


def _field(name: str, rest: str = "parallelism") -> str:
    return f"spec.operators[{name}].{rest}"


def _changes(was: SavedStage, now: OperatorSpec) -> Iterator[Change]:
    same = was.parallelism == now.parallelism
    ways = ({i.source: (i.grouping.mode, i.grouping.by) for i in spec.inputs} for spec in (was, now))
    if same and (now.parallelism == 1 or _read_alike(*ways)):
        return
    operator = make_operator(now)
    if not _has_state(operator, now):
        if not same:
            yield Change(now.name, was.parallelism, now.parallelism, How.NONE)
        return
    old, new = _Inputs.of(was, operator), _Inputs.of(now, operator)
    if same and _read_alike(old.of_state, new.of_state):
        return
    field = _field(now.name, "inputs" if same else "parallelism")
    changed = (
        "how rows reach it has changed"
        if same
        else f"is {now.parallelism}, and {was.parallelism} in the savepoint"
    )
    if old.copied and new.copied and (old.parallelism > 1 or divisible(operator)):
        yield Change(now.name, was.parallelism, now.parallelism, How.COPIED)
        return
    if (why := _undivided(operator, old, new)) is not None:
        raise SpecError(field, f"{changed}, but {why}")
    yield Change(now.name, was.parallelism, now.parallelism, How.DIVIDED, old.routing, new.routing)


def _read_alike(was: Ways, now: Ways) -> bool:
    """Whether rows of the inputs that both have come to the same partitions; where they share none, whether all do."""
    if common := was.keys() & now.keys():
        return all(was[name] == now[name] for name in common)
    return set(was.values()) == set(now.values())


def _require_forwarded_alike(
    was: SavedStage, now: OperatorSpec, before: Sequence[SavedStage], after: Sequence[OperatorSpec]
) -> None:
    """SpecError where rows come by `forward` into a state from partitions to which rows come otherwise than before: keys
    fall to other partitions then, though the input itself says the same."""
    if now.parallelism == 1:
        return
    old = _forwarded(was.name, {stage.name: stage for stage in before if not stage.is_source})
    new = _forwarded(now.name, {spec.name: spec for spec in after})
    if not old or not new or old == new:
        return
    operator = make_operator(now)
    wanted = operator.state_inputs
    into_state = any(
        i.grouping.mode is Mode.FORWARD and (wanted is None or i.source in wanted) for i in now.inputs
    )
    if into_state and _has_state(operator, now):
        raise SpecError(
            _field(now.name, "inputs"),
            "how rows reach it has changed: they come by `forward`, and reach the partitions before it otherwise than in "
            "the savepoint, so keys would not be where their state is. Leave that as it was, or let rows come by key",
        )


def _forwarded(
    name: str, operators: Mapping[str, SavedStage | OperatorSpec], seen: frozenset[str] = frozenset()
) -> frozenset[tuple[Mode, tuple[str, ...]]]:
    """How the rows that an operator gets by `forward` have come to the partitions that they follow; those of a source are
    where that says."""
    found: frozenset[tuple[Mode, tuple[str, ...]]] = frozenset()
    for spec in operators[name].inputs:
        if spec.grouping.mode is not Mode.FORWARD or spec.source in seen:
            continue
        if (upstream := operators.get(spec.source)) is None:
            found |= {(Mode.FORWARD, (spec.source,))}
            continue
        found |= {
            (i.grouping.mode, i.grouping.by) for i in upstream.inputs if i.grouping.mode is not Mode.FORWARD
        }
        found |= _forwarded(spec.source, operators, seen | {name})
    return found


def _has_state(operator: Operator, spec: OperatorSpec) -> bool:
    """SpecError: it cannot be told, as user code raises."""
    try:
        return operator.initial(Place(spec.name, 0, spec.parallelism)) is not None
    except Exception as error:
        reason = f"`initial` raises {type(error).__name__}: {error}"
        raise SpecError(_field(spec.name, "class"), reason) from error


def divisible(operator: Operator) -> bool:
    """Whether the operator says how its state is divided.  A class that has one of `_OWN` of its own and inherits what it
    says may keep more than that knows of."""
    if operator.state_keys is None:
        return False
    for kind in type(operator).__mro__:
        if _SAYS & vars(kind).keys():
            return kind is not Operator
        if _OWN & vars(kind).keys():
            return False
    return False


@dataclass(frozen=True, slots=True)
class _Inputs:
    """How rows that a state is made of reach an operator."""

    parallelism: int
    of_state: Ways

    @staticmethod
    def of(spec: SavedStage | OperatorSpec, operator: Operator) -> _Inputs:
        wanted = operator.state_inputs
        ways = {
            i.source: (i.grouping.mode, i.grouping.by)
            for i in spec.inputs
            if wanted is None or i.source in wanted
        }
        return _Inputs(spec.parallelism, ways)

    @property
    def modes(self) -> frozenset[Mode]:
        """How all of them reach it."""
        return frozenset(mode for mode, _ in self.of_state.values())

    @property
    def copied(self) -> bool:
        """Whether each partition reads all rows."""
        return self.modes == {Mode.BROADCAST} or (self.parallelism == 1 and Mode.FORWARD not in self.modes)

    @property
    def keys(self) -> frozenset[tuple[str, ...]]:
        """The key columns; of one partition it does not matter."""
        if self.parallelism == 1:
            return frozenset(((),))
        return frozenset(by for mode, by in self.of_state.values() if mode is Mode.KEYS)

    @property
    def routing(self) -> Routing:
        """Where there is one."""
        (by,) = self.keys
        return Routing(by, self.parallelism)

    def undivided(self, state_keys: Sequence[str]) -> str | None:
        """Why a state is not divided as its rows are; None: it is."""
        if self.parallelism == 1:
            return None
        if Mode.FORWARD in self.modes:
            return "a state of rows that come by `forward` follows the partitions before it, and not a key"
        if Mode.BROADCAST in self.modes:
            return "its state has rows that come by `broadcast`, which every partition has, beside those that come by key"
        if len(self.keys) != 1:
            ways = " and ".join(f"({', '.join(by)})" for by in sorted(self.keys))
            return (
                f"its inputs are grouped by different columns, {ways}, so no key of its state has one partition"
                if ways
                else "none of the inputs that its state is made of is there in both"
            )
        (by,) = self.keys
        if others := [name for name in by if name not in state_keys]:
            return (
                f"rows fall to partitions by {others[0]!r}, which is not among the columns by which its state is divided "
                f"({', '.join(state_keys) or 'none'}): what it has of one of these may be in several partitions"
            )
        return None


def _undivided(operator: Operator, old: _Inputs, new: _Inputs) -> str | None:
    if not divisible(operator):
        return (
            f"{type(operator).__name__} has state and does not say by which columns it can be divided (`state_keys`); keep "
            "the number of partitions and how rows reach them, or give the operator another name, so that it begins anew"
        )
    keys = operator.state_keys or ()
    if not keys:
        return "its state is that of all rows together, so it cannot be divided; keep one partition"
    return old.undivided(keys) or new.undivided(keys)


def _in_cycle(change: Change, readers: Sequence[SavedStage | OperatorSpec]) -> Iterator[SpecError]:
    """A partition holds what it has sent over a feedback edge for the partitions that were there."""
    field = f"spec.sources[{change.name}].parallelism" if change.how is How.SOURCE else _field(change.name)
    for reader in readers:
        for spec in reader.inputs:
            if spec.feedback and change.name in (reader.name, spec.source):
                yield SpecError(
                    field,
                    f"cannot change: the edge from {spec.source!r} to {reader.name!r} is feedback, and what is under way "
                    "on it belongs to the partitions of before",
                )
