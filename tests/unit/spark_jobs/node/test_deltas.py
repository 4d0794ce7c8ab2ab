"""What a passive standby is sent: whichever deltas come, in whatever order, its copy is the state of some batch of its
partition, and of the last one once that has come."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox, Input, Place
from reprise.spark_jobs.errors import WireError
from reprise.spark_jobs.node.deltas import Delta, Entry, Outputs, Seen, StateCopy, describe
from reprise.spark_jobs.node.wire import decode_table, encode_table
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.operators.paged import freezer
from reprise.spark_jobs.pages import Frozen, Parts, pieces

PLACE = Place("o", 0, 1)
KEYS = 5000


def counting() -> RunningAggregate:
    return RunningAggregate(keys=["k"], aggregate={"n": "count()"})


def inbox(batch: int, keys: Sequence[int]) -> Inbox:
    rows = pa.table({"k": pa.array(keys, pa.int64())})
    return Inbox(batch, None, (Input("u", "u.0", rows),))


def whole(parts: Parts) -> dict[str, list[object]]:
    """The rows of a frozen state."""
    delta = Delta("i", None, 1, {})
    describe(delta, parts, None)
    copy = StateCopy()
    copy.take(delta)
    return {name: table.to_pylist() for name, table in (copy.tables() or {}).items()}


def sent(delta: Delta) -> Delta:
    """As it arrives."""
    return Delta.decode(decode_table(encode_table(delta.encode())))


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, KEYS), min_size=1, max_size=5), st.booleans(), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_copies_follow_the_state_whatever_is_lost(
    steps: list[tuple[list[int], bool, bool]], paged: bool
) -> None:
    """`steps`: keys of a batch; whether its delta comes; whether the partition hears of that."""
    operator = counting()
    state = operator.initial(PLACE)
    state, _ = operator.step(state, inbox(1, range(KEYS)))
    freeze = freezer(operator, paged)
    copy, confirmed, seen = StateCopy(), -1, dict[int, Seen]()
    late: Delta | None = None
    states: dict[int, dict[str, list[object]]] = {}
    for batch, (keys, comes, heard) in enumerate(steps, 2):
        state, _ = operator.step(state, inbox(batch, keys))
        states[batch] = whole(freeze(state)())
        base = confirmed if confirmed in seen else None
        delta = Delta("i", base, batch, {})
        seen[batch] = describe(delta, freeze(state)(), seen.get(confirmed))
        if comes:
            assert copy.fits(delta)
            copy.take(sent(delta))
            assert copy.position == batch
            if heard:
                confirmed = batch
        elif late is None:
            late = delta
        if copy.position >= 0:
            tables = copy.tables()
            assert tables is not None
            assert {name: t.to_pylist() for name, t in tables.items()} == states[copy.position]
            again = operator.restore(PLACE, tables)
            assert whole(freezer(operator, False)(again)())["values"] == states[copy.position]["values"]
    if late is not None and late.position < copy.position:
        assert not copy.fits(late)


def test_of_a_state_in_pages_those_go_that_changed() -> None:
    operator = counting()
    state = operator.initial(PLACE)
    state, _ = operator.step(state, inbox(1, range(100_000)))
    first = Delta("i", None, 1, {})
    seen = describe(first, operator.freeze_pages(state)(), None)
    state, _ = operator.step(state, inbox(2, [5, 6, 70_000]))
    second = Delta("i", 1, 2, {})
    describe(second, operator.freeze_pages(state)(), seen)
    sizes = [sum(map(len, delta.blobs)) for delta in (first, second)]
    assert sizes[1] < sizes[0] / 40
    state, _ = operator.step(state, inbox(3, [5]))
    arrays = Delta("i", 2, 3, {})
    describe(arrays, operator.freeze(state)(), None)
    assert sum(map(len, arrays.blobs)) > sizes[0] / 2, "without pages all of it goes"


def test_whatever_is_frozen_is_released() -> None:
    operator = counting()
    state = operator.initial(PLACE)
    state, _ = operator.step(state, inbox(1, range(3000)))
    parts = operator.freeze_pages(state)()
    describe(Delta("i", None, 1, {}), parts, None)
    frozen = [p for part in parts.values() for p in pieces(part) if isinstance(p, Frozen)]
    columns = [p for p in frozen if p.describe()["kind"] == "columns"]
    assert columns
    for section in columns:
        with pytest.raises(LookupError):
            section.page(0)


def test_output_goes_as_it_was_encoded_once_for_all_who_get_it() -> None:
    rows, none = b"x" * 1000, b""
    outputs = {f"r.{i}": Outputs(3, [Entry(3, None, rows), Entry(4, 17, none)]) for i in range(4)}
    delta = Delta("i", 2, 4, outputs)
    table = delta.encode()
    assert table.nbytes < 2500
    found = sent(delta)
    assert found.outputs == outputs
    assert (found.installation, found.base, found.position, found.tables) == ("i", 2, 4, None)


@pytest.mark.parametrize("at", [0, 7, -1])
def test_damage_is_found(at: int) -> None:
    delta = Delta("i", None, 4, {"r.0": Outputs(1, [Entry(4, None, b"rows of it")])})
    rows = delta.encode()["bytes"].to_pylist()
    for number, row in enumerate(rows):
        broken = bytearray(row)
        broken[at] ^= 64
        table = pa.table(
            {"bytes": pa.array([*rows[:number], bytes(broken), *rows[number + 1 :]], pa.large_binary())}
        )
        with pytest.raises(WireError, match="not a delta"):
            Delta.decode(table)
    for table in (None, pa.table({"other": [1]}), delta.encode().slice(0, 1)):
        with pytest.raises(WireError, match="not a delta"):
            Delta.decode(table)


def test_a_delta_that_does_not_fit_leaves_the_copy_as_it_is() -> None:
    operator = counting()
    state = operator.initial(PLACE)
    state, _ = operator.step(state, inbox(1, range(3000)))
    copy, first = StateCopy(), Delta("i", None, 1, {})
    seen = describe(first, operator.freeze_pages(state)(), None)
    state, _ = operator.step(state, inbox(2, [1]))
    second = Delta("i", 1, 2, {})
    describe(second, operator.freeze_pages(state)(), seen)
    assert not copy.fits(second), "nothing is there that it could build on"
    with pytest.raises(WireError, match="does not fit"):
        copy.take(second)
    assert (copy.position, copy.tables()) == (-1, None)
    copy.take(first)
    assert copy.fits(second)
    copy.take(second)
    assert not copy.fits(first)
    assert copy.position == 2
