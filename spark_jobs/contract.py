"""What an operator, a source and their batches are: the one contract between user code and the data plane.

User code is plain Python over Arrow: a partition's whole life is `initial` (or `restore` from a checkpoint) followed by
`step` for batch 1, 2, 3, ... in order, each exactly once.  The data plane promises that the inbox of batch b is identical,
row for row, in every replay; an operator that is a function of (state, inbox) alone is therefore deterministic, and its
output after recovery is the output it would have had.  An operator for which that cannot hold says `kind = Kind.ARBITRARY`
and pays with a rollback of the whole topology at each failure (Su and Zhou, section 4.3).

With `batch.order: arrival` that promise is another one: `step` is called whenever rows of some inputs are there, several
times for one batch, and each row comes exactly once.  `Inbox.batch` is then the batch that is not complete yet, and never
falls.

Times are event times in integer microseconds since the epoch.  Tables are `pyarrow.Table`; rows keep their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from inspect import get_annotations
from types import MemberDescriptorType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.platform import Platform

Columns = tuple[str, ...] | None
"""Names of the columns of rows, in order; None: not known."""

LATE_ROWS = "late_rows"
"""The counter of rows that an operator dropped because they came too late."""

FIRST_STATE_VERSION = 1
"""`state_version` of a class that does not say it."""

Tables = Mapping[str, pa.Table]
"""A state in the form that checkpoints store: named Arrow tables, nothing pickled."""

Targets = Callable[[pa.Table], npt.NDArray[np.int64]]
"""Of rows that have the columns by which an operator's input is grouped: to the partition with which index each belongs."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator instance runs in the topology: which key group of how many."""

    operator: str
    index: int
    parallelism: int

    @property
    def partition(self) -> str:
        """The partition's id, e.g. `by-carrier.0`."""
        return f"{self.operator}.{self.index}"


@dataclass(frozen=True, slots=True)
class Input:
    """What one upstream partition sent to this partition in one batch; `table` may have no rows."""

    operator: str
    partition: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Inbox:
    """The complete input of one batch: one `Input` for every upstream partition that sent rows.

    `inputs` is sorted by (position of the upstream operator in the spec's `inputs`, upstream partition index): the order of
    order-preserving processing.  `watermark`: no later batch will bring an event time below it, except late rows;
    None until every upstream has one.
    """

    batch: int
    watermark: int | None
    inputs: tuple[Input, ...]

    def table(self, operator: str | None = None) -> pa.Table | None:
        """All rows (of one upstream operator, or of all) in order; None when there are none."""
        tables = [
            i.table for i in self.inputs if (operator is None or i.operator == operator) and i.table.num_rows
        ]
        if not tables:
            return None
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def joined_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of tables of one kind, one after the other, in the columns of the first that has rows; a column without
    values takes the type of the others.  TypeError: their columns do not go together."""
    some = [table for table in tables if table.num_rows]
    if len(some) <= 1:
        return (some or list(tables) or [pa.table({})])[0]
    names = some[0].column_names
    if other := next((t.column_names for t in some if set(t.column_names) != set(names)), None):
        raise TypeError(f"the tables of two partitions have other columns: {names} and {other}")
    ordered = [table.select(names) for table in some]
    try:
        return pa.concat_tables(ordered, promote_options="default").combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass
    try:
        return pa.concat_tables([t.cast(some[0].schema) for t in ordered]).combine_chunks()
    except pa.ArrowException as error:
        raise TypeError(f"the tables of two partitions do not go together: {error}") from error


def require_table(rows: object) -> None:
    """TypeError for rows that are neither a table nor None: said at once, and not where they are encoded later."""
    if rows is not None and not isinstance(rows, pa.Table):
        raise TypeError(f"rows must be a pyarrow.Table or None, not {type(rows).__name__}")


class Kind(StrEnum):
    """What an operator's output depends on; each kind is also all of those before it (Hwang et al., "High-Availability
    Algorithms for Distributed Stream Processing", section 3.2 and figure 3)."""

    ARBITRARY = "arbitrary"
    """The same state and input may give another output: a clock, randomness, an order of arrival."""
    DETERMINISTIC = "deterministic"
    """The same state and input give the same output."""
    CONVERGENT = "convergent"
    """From the initial state, at any batch, it comes to the outputs of a run from the first batch: its output depends on no
    input older than `Operator.oldest_needed` or `Operator.oldest_needed_behind` says."""
    REPEATABLE = "repeatable"
    """Each row of its output depends on one row of its input, of the same batch; which columns it has may depend on the
    others of the batch."""

    @property
    def deterministic(self) -> bool:
        """Whether a replay of the same batches gives the same rows."""
        return self is not Kind.ARBITRARY

    def declared(self, deterministic: bool) -> Kind:
        """The kind of an operator of this kind that is said to be deterministic, or not."""
        if not deterministic:
            return Kind.ARBITRARY
        return Kind.DETERMINISTIC if self is Kind.ARBITRARY else self


class Operator(ABC):
    """One operator of a topology; an instance serves one partition.  Subclasses take their YAML `with:` as keywords.

    State is explicit: whatever `initial` returns is handed to `step` and replaced by what `step` returns.  `step` may change
    the state in place; the data plane never looks at a state between `step` and `freeze`.
    """

    kind: Kind = Kind.DETERMINISTIC
    """What its output depends on; where that follows from parameters, the constructor sets it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class that says `deterministic = True` or `False` gets the kind that follows from that.  TypeError where it says
        a kind, too, and the other one."""
        super().__init_subclass__(**kwargs)
        said = cls.deterministic
        if isinstance(said, property | MemberDescriptorType):
            return
        deterministic = bool(said)
        if "kind" in cls.__dict__ and cls.kind.deterministic is not deterministic:
            raise TypeError(f"{cls.__name__}: `kind` is {cls.kind} and `deterministic` is {deterministic}")
        cls.kind = cls.kind.declared(deterministic)
        if "deterministic" not in get_annotations(cls):  # else a field of a dataclass
            cls.deterministic = _follows_from_kind  # type: ignore[method-assign]

    @property
    def deterministic(self) -> bool:
        """Whether a replay gives the same rows; it follows from `kind`."""
        return self.kind.deterministic

    @deterministic.setter
    def deterministic(self, said: bool) -> None:
        self.kind = self.kind.declared(said)

    def oldest_needed(self, batch: int) -> int | None:
        """The first batch of input on which the output of `batch` can depend, whatever the rows are; None: on all before.
        An operator that is `convergent` says it; it never falls from one batch to the next."""
        return batch if self.kind is Kind.REPEATABLE else None

    def oldest_needed_behind(self, state: Any, batch: int) -> int | None:
        """The first batch of input on which the output of the batches behind `batch` can depend, where the rows decide that:
        `state` is that after `batch`, and is not changed.  At most `batch + 1`; it never falls.  An operator that is
        `convergent` defines it where `oldest_needed` cannot know; it is asked after every job, so it must be quick."""
        return self.oldest_needed(batch + 1)

    @property
    def reaches_by_state(self) -> bool:
        """Whether only its state says how far back it reaches (`oldest_needed_behind`)."""
        asked = type(self).oldest_needed_behind is not Operator.oldest_needed_behind
        return asked and self.kind is Kind.CONVERGENT and self.oldest_needed(1) is None

    def initial(self, place: Place) -> Any:
        """The state before the first batch; None for a stateless operator."""
        return None

    @abstractmethod
    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        """Apply one batch: returns the new state and the rows to send downstream (None: no rows)."""

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        """Optional: the columns that `step` gives, from those of each upstream operator, by its name in the order of the
        spec; None: not known.  `reprise validate` follows them through the graph.  SpecError("parameter", "why") for a
        column that a parameter names and that is not among those that are known.
        """
        return None

    def freeze(self, state: Any) -> Callable[[], Tables]:
        """Fix the state as it is now, quickly, and return a function that a background thread calls to encode it.

        The default serves stateless operators only; an operator with state must override this and `restore`.
        """
        if state is not None:
            raise NotImplementedError(
                f"{type(self).__name__} has state but does not define freeze and restore"
            )
        return dict

    def restore(self, place: Place, tables: Tables) -> Any:
        """The inverse of `freeze`: a state from checkpointed tables."""
        return self.initial(place)

    state_version: ClassVar[int] = FIRST_STATE_VERSION
    """Version of what `freeze` gives: raise it with each change after which `restore` could not read what was stored
    before.  It is stored with each state."""

    oldest_state_version: ClassVar[int | None] = None
    """The oldest version that `upgrade_state` takes over; None: the first, where the class defines `upgrade_state`."""

    def upgrade_state(self, place: Place, version: int, tables: Tables) -> Tables:
        """Tables as `freeze` of this class gives them, made of those that version `version` of it gave; called before
        `restore`, once for each state of an earlier version, never with a later one.  It must depend on nothing else, as the
        same state may be restored again."""
        raise NotImplementedError(f"{type(self).__name__} does not define upgrade_state")

    def reads_state(self, version: int) -> bool:
        """Whether a state of this version can be restored: by itself, or through `upgrade_state`."""
        return self._oldest_read <= version <= self.state_version

    @property
    def state_versions(self) -> str:
        """The versions that it reads, for people."""
        oldest, newest = self._oldest_read, self.state_version
        return f"version {newest} alone" if oldest == newest else f"versions {oldest} to {newest}"

    @property
    def _oldest_read(self) -> int:
        if type(self).upgrade_state is Operator.upgrade_state:
            return self.state_version
        return FIRST_STATE_VERSION if self.oldest_state_version is None else self.oldest_state_version

    def counters(self, state: Any) -> Mapping[str, int]:
        """Optional: named whole numbers that a person would ask of a running partition: what it has dropped (`late_rows`),
        what it holds (`keys`).  It is asked after every job, so it must be quick.  The sum over the partitions of the
        operator is in the status document, in `reprise status`, on the web page and among the driver's metrics.
        """
        return {}

    @property
    def state_keys(self) -> Columns:
        """Columns of the input that decide which part of the state a row reads and changes, so that the state can be divided
        by them when parallelism changes (docs/operators.md); None: it cannot be.  It may be an attribute, too."""
        return None

    @property
    def state_inputs(self) -> Columns:
        """The upstream operators whose rows the state is made of; None: all."""
        return None

    def keys_of(self, name: str, table: pa.Table) -> pa.Table:
        """The columns `state_keys` of each row of one of the tables that `freeze` gives, in the types of the input."""
        keys = self.state_keys or ()
        missing = [key for key in keys if key not in table.column_names]
        if missing and table.num_rows:
            raise ValueError(
                f"the table {name!r} of the state has no column {missing[0]!r}, so its rows belong to no partition: "
                "define `keys_of`, or `split_state` and `merge_states`"
            )
        return table.select([key for key in keys if key in table.column_names])

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        """The parts of one partition's state that `parallelism` partitions get, by index.  By default each row of each table
        goes where its `keys_of` belong."""
        parts: list[dict[str, pa.Table]] = [{} for _ in range(parallelism)]
        for name, table in tables.items():
            index = targets(self.keys_of(name, table)) if table.num_rows else np.zeros(0, np.int64)
            for number, part in enumerate(parts):
                part[name] = table.filter(pa.array(index == number)) if table.num_rows else table
        return parts

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        """One partition's state out of the parts of those before, in their order; no key is in two of them."""
        named = dict.fromkeys(name for part in parts for name in part)
        return {name: joined_rows([part[name] for part in parts if name in part]) for name in named}


_follows_from_kind = Operator.deterministic


class Range(NamedTuple):
    """The slice of one source partition that makes up one batch: offsets [start, end).

    A source partition that reads several logs gives the offsets of each in `logs`, with every log that it has met; `start`
    and `end` then count what lies before in all of them together.  `ids`: topic -> the ids of its cluster and its
    creation, where offsets count for that topic alone.
    """

    start: int
    end: int
    logs: Mapping[str, tuple[int, int]] = {}
    ids: Mapping[str, str] = {}

    @staticmethod
    def parse(value: Any) -> Range:
        """The inverse of JSON; raises TypeError or ValueError for something else."""
        start, end, logs, ids = value
        pairs = {name: (int(s), int(e)) for name, (s, e) in logs.items()}
        return Range(int(start), int(end), pairs, {str(topic): str(known) for topic, known in ids.items()})


@dataclass(frozen=True, slots=True)
class SourcePart:
    """How far one source partition is: the range of its last batch, whose end it goes on from, and its state."""

    upto: Range
    tables: Tables | None = None


class Source(ABC):
    """A replayable source; an instance serves one source partition, `read` in executors and `advance` in the driver.

    `plan` (by default through `advance`) decides, once, what batch b is; the decision is written ahead of the first read,
    so that every replay of b calls `read` with the same range and must get the same rows.

    A source whose watermark depends on rows that it has read keeps them in a state, as operators do: `follow` is to it what
    `step` is to them.  Trouble that passes is a `reprise.spark_jobs.errors.SourceError`: the batch waits and is tried again.
    """

    live: ClassVar[bool] = False
    """Whether rows arrive while the stream runs: batches are then cut when they are due and not ahead of time."""

    @abstractmethod
    def advance(self, place: Place, batch: int, start: int) -> int | None:
        """End offset of `batch`, which begins at offset `start`; None when the source has ended before `start`.

        A range may be empty (end == start).  Must not depend on the time of the call where outputs are to be compared.
        """

    def plan(self, place: Place, batch: int, before: Range) -> Range | None:
        """The range of `batch`, which goes on where `before` ends; None when the source has ended there."""
        end = self.advance(place, batch, before.end)
        return None if end is None else Range(before.end, end)

    gives_up: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Parameters -> values with which rows may be left out -> what is given up by that, for people.
    It is said with what is promised of each output that depends on it (docs/recovery.md)."""

    files: ClassVar[tuple[str, ...]] = ()
    """Parameters that hold paths of files; relative ones are meant from the folder of the topology file."""

    def output_columns(self) -> Columns:
        """Optional: the columns of the rows; None: not known.  Called where the topology file is read, so files may be
        looked at.  SpecError("parameter", "why") for a file that cannot be read."""
        return None

    def found_types(self) -> Mapping[str, str]:
        """Optional: the types of columns that nobody declared, as the source finds them in its data.  Called by `reprise
        validate` alone, and may take as long as reading all of it.  A `DataPlaneError` says why it cannot be read."""
        return {}

    def runs_on(self, platform: Platform) -> None:  # noqa: B027 - most sources wait for nobody
        """Called once, before anything is asked: clocks and threads of the process that it is in from now on."""

    def look(self) -> None:  # noqa: B027 - most sources know by themselves
        """Called in the driver before the ranges of one or more batches are asked for: the time to ask the outside."""

    def stored(self, place: Place, upto: Range) -> None:  # noqa: B027 - most sources have nothing to trim
        """Called in the driver: a checkpoint that covers everything up to the end of `upto` is complete."""

    @abstractmethod
    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        """The rows of one range, the same ones each time."""

    @abstractmethod
    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        """The event time below which no row of a later batch will be (late rows apart); None: not known yet.  Once it is
        known it stays known, and never falls."""

    def initial(self, place: Place) -> Any:
        """The state before the first batch; None for a source without."""
        return None

    def follow(
        self, place: Place, state: Any, batch: int, span: Range, table: pa.Table | None
    ) -> tuple[Any, int | None]:
        """The state after a batch whose rows are `table`, and the batch's watermark."""
        return state, self.watermark(place, batch, span)

    def freeze(self, state: Any) -> Callable[[], Tables]:
        """Fix the state, as for an operator; it is only called for a state that is not None."""
        raise NotImplementedError(f"{type(self).__name__} has state but does not define freeze and restore")

    def restore(self, place: Place, tables: Tables) -> Any:
        """The inverse of `freeze`."""
        return self.initial(place)

    def repartition(
        self, operator: str, parts: Sequence[SourcePart], parallelism: int
    ) -> Sequence[SourcePart]:
        """Where `parallelism` source partitions go on that take the place of these: together they have read the same rows,
        and read all others.  SpecError("parallelism", "why") where that cannot be."""
        raise SpecError(
            "parallelism",
            f"{type(self).__name__} does not say how what it has read falls to other partitions",
        )

    def notices(self) -> list[str]:
        """What a person should know of since the last call: rows that were set aside, offsets that were lost."""
        return []

    def close(self) -> None:  # noqa: B027 - most sources hold no connection
        """Give back connections; the instance is not used again."""
