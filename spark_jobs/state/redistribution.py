"""The states of a topology's partitions out of those of one with other numbers of partitions.

Pure but for `Read`, which reads the state of a partition as a checkpoint has it.  One operator is done after the other, so
that no more than the states of one are in memory.  Invariant: each key of a state is in one new partition, the one to which
its rows go; that it was in the old one to which they went is checked for each, and nothing is made of a state otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.spark_jobs.contract import Operator, Place, Range, SourcePart, Tables
from reprise.spark_jobs.errors import CheckpointError, SpecError
from reprise.spark_jobs.state.ledger import has_ended
from reprise.spark_jobs.state.rescaling import Change, How
from reprise.spark_jobs.state.table_names import (
    NOT_OF_OPERATOR,
    STATE_VERSION,
    WATERMARK,
    upgraded,
    version_of,
    version_table,
    watermark_table,
)
from reprise.spark_jobs.topology import StreamTopology, make_operator, make_source

Read = Callable[[str], Tables | None]
"""The tables of a partition's snapshot; None: it has none."""


class RescaleError(CheckpointError):
    """A state that cannot be divided, though the topologies would allow it; names the partition."""


def redistributed(change: Change, now: StreamTopology, read: Read) -> Iterator[tuple[str, Tables]]:
    """Each new partition of an operator that changes, with its snapshot: what the operator has, and the watermark, which is
    that of the partition that was last.  A partition without one was the last: its rows may have any time.  RescaleError:
    a state cannot be divided; and what `read` raises."""
    before = _ids(change.name, change.before)
    stored = [dict(read(pid) or {}) for pid in before]
    marks = [tables.pop(WATERMARK, None) for tables in stored]
    versions = [version_of(tables) for tables in stored]
    for pid, tables in zip(before, stored, strict=True):
        tables.pop(STATE_VERSION, None)
        if held := next((name for name in tables if name.startswith(NOT_OF_OPERATOR)), None):
            raise RescaleError(f"the state of {pid} holds {held!r}, which belongs to that partition alone")
    times = [None if mark is None else mark["watermark"][0].as_py() for mark in marks]
    least = None if None in times else min(time for time in times if time is not None)
    operator = make_operator(now.operator(change.name))
    own = _upgraded(change, operator, stored, versions)
    after = _states(change, operator, own)
    # Of the keys of some partitions it would go back, and windows would close twice.
    if change.how is How.DIVIDED and len(set(times)) > 1:
        raise RescaleError(
            f"the partitions of {change.name} have different watermarks "
            f"({', '.join('none' if t is None else str(t) for t in times)}); give all of its "
            "inputs `by`, or give it another name, so that it begins from scratch"
        )
    for pid, state in zip(_ids(change.name, change.now), after, strict=True):
        version = version_table(operator) if state else {}
        yield pid, {**state, **version, WATERMARK: watermark_table(least)}


def _upgraded(
    change: Change, operator: Operator, stored: Sequence[Tables], versions: Sequence[int]
) -> Sequence[Tables]:
    """States as the class of now gives them: what it divides is of one version."""
    found = []
    for number, (tables, version) in enumerate(zip(stored, versions, strict=True)):
        place = Place(change.name, number, change.before)
        try:
            found.append(upgraded(operator, place, version, tables) if tables else tables)
        except Exception as error:  # of user code
            raise RescaleError(
                f"the state of {place.partition} cannot be read: {type(error).__name__}: {error}"
            ) from error
    return found


def _ids(name: str, count: int) -> list[str]:
    return [f"{name}.{number}" for number in range(count)]


def _states(change: Change, operator: Operator, states: Sequence[Tables]) -> Sequence[Tables]:
    if change.how is How.NONE:
        if any(states):
            raise RescaleError(f"{change.name} has no state in this topology, and one in the savepoint")
        return [{}] * change.now
    for pid, state in zip(_ids(change.name, change.before), states, strict=True):
        if not state:
            raise RescaleError(f"the savepoint has no state of {pid}, and {type(operator).__name__} has one")
    if change.how is How.COPIED:
        for number, state in enumerate(states):
            if not _equal(state, states[0]):
                raise RescaleError(
                    f"{change.name}.0 and {change.name}.{number} have read the same rows, and differ"
                )
        return [states[0]] * change.now
    return _divided(change, operator, states)


def _equal(one: Tables, other: Tables) -> bool:
    """Whether they hold the same values; NaN is one, too, which Arrow compares as another."""
    return one.keys() == other.keys() and all(
        table.equals(other[name])
        or (
            table.schema.equals(other[name].schema) and str(table.to_pylist()) == str(other[name].to_pylist())
        )
        for name, table in one.items()
    )


def _divided(change: Change, operator: Operator, states: Sequence[Tables]) -> Sequence[Tables]:
    pid = change.name
    try:
        parts = []
        for number, state in enumerate(states):
            pid = f"{change.name}.{number}"
            parts.append(operator.split_state(state, _checked(change, number), change.now))
        found = []
        for number in range(change.now):
            pid = f"new {change.name}.{number}"
            found.append(operator.merge_states([part[number] for part in parts]))
        return found
    except CheckpointError:
        raise
    except Exception as error:  # of user code, or a column that has no hash or two types
        raise RescaleError(
            f"the state of {pid} cannot be divided: {type(error).__name__}: {error}"
        ) from error


def _checked(change: Change, number: int) -> Callable[[pa.Table], npt.NDArray[np.int64]]:
    """Where rows of the state of an old partition go, once it is certain that they belong to that."""
    old, new = change.old, change.new
    assert old is not None
    assert new is not None

    def targets(keys: pa.Table) -> npt.NDArray[np.int64]:
        there = old.targets(keys)
        if len(strange := np.flatnonzero(there != number)):
            row = keys.select(old.by).slice(int(strange[0]), 1).to_pylist()[0]
            raise RescaleError(
                f"{change.name}.{number} has state of {row}, whose rows go to {change.name}.{int(there[strange[0]])} by "
                f"{', '.join(old.by)}: the state is not divided as its rows are"
            )
        return new.targets(keys)

    return targets


def source_parts(
    changes: Sequence[Change], now: StreamTopology, ranges: Mapping[str, Range], read: Read
) -> dict[str, SourcePart]:
    """Where the partitions of the sources that change go on, by their ids; `ranges`: those of the savepoint's last batch.
    SpecError: a source does not say, or refuses."""
    found: dict[str, SourcePart] = {}
    for change in changes:
        if change.how is not How.SOURCE:
            continue
        source = make_source(now.source(change.name))
        parts = [SourcePart(_begun(ranges[pid]), read(pid)) for pid in _ids(change.name, change.before)]
        try:
            after = source.repartition(change.name, parts, change.now)
        except SpecError as error:
            raise SpecError(f"spec.sources[{change.name}].{error.field}", error.reason) from error
        except Exception as error:  # of user code
            reason = f"cannot change: {type(source).__name__} says {type(error).__name__}: {error}"
            raise SpecError(f"spec.sources[{change.name}].parallelism", reason) from error
        finally:
            source.close()
        found |= dict(zip(_ids(change.name, change.now), after, strict=True))
    return found


def _begun(span: Range) -> Range:
    """A range as that of a source partition that goes on; whether it has ended is asked again."""
    return span._replace(start=~span.start, end=~span.end) if has_ended(span) else span
