"""Splitting by key: nothing lost, order kept, and the same targets for ever."""

from __future__ import annotations

import datetime as dt
import zlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.topology import Grouping, Mode, RoutingError, route, split
from reprise.spark_jobs.topology.routing import hash_rows
from tests.support.examples import examples

values = st.one_of(st.none(), st.text(max_size=3))
rows = st.lists(
    st.tuples(values, st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))), min_size=1, max_size=60
)


@examples(100)
@given(rows, st.integers(1, 7), st.sampled_from([["a"], ["b"], ["a", "b"]]))
def test_a_split_keeps_rows_and_order_and_sends_equal_keys_together(
    rows: list[tuple[str | None, int | None]], parallelism: int, by: list[str]
) -> None:
    a, b = zip(*rows, strict=True)
    table = pa.table({"a": pa.array(a, pa.string()), "b": pa.array(b, pa.int64()), "row": range(len(rows))})
    # Two chunks: where a chunk ends must not show.
    table = pa.concat_tables([table.slice(0, len(rows) // 2), table.slice(len(rows) // 2)])
    parts = split(table, by, parallelism)
    assert all(0 <= target < parallelism and part.num_rows for target, part in parts.items())
    assert sorted(n for part in parts.values() for n in part.column("row").to_pylist()) == list(
        range(len(rows))
    )
    target_of: dict[tuple[object, ...], int] = {}
    for target, part in parts.items():
        numbers = part.column("row").to_pylist()
        assert numbers == sorted(numbers)
        for row in part.to_pylist():
            assert (row["a"], row["b"]) == rows[row["row"]]
            assert target_of.setdefault(tuple(row[k] for k in by), target) == target


def finalizer(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


@examples(30)
@given(rows)
def test_the_hash_is_the_one_that_the_page_on_topologies_describes(
    rows: list[tuple[str | None, int | None]],
) -> None:
    a, b = zip(*rows, strict=True)
    table = pa.table({"a": pa.array(a, pa.string()), "b": pa.array(b, pa.int64())})
    of_null = 0x9AE16A3B2F90404F
    expected = []
    for text, number in rows:
        total = 0
        for value in (None if text is None else zlib.crc32(text.encode()), number):
            total = finalizer(31 * total + (of_null if value is None else finalizer(value % 2**64)))
        expected.append(total)
    assert hash_rows(table, ["a", "b"]).tolist() == expected


def test_hashes_never_change() -> None:
    """Checkpoints and buffers of one version are read by another: these numbers may not move."""
    columns: dict[str, pa.Array] = {
        "text": pa.array(["", "tag1", None, "é"]),
        "int": pa.array([0, -1, None, 2**62], pa.int64()),
        "float": pa.array([0.0, 1.5, None, float("nan")]),
        "bool": pa.array([True, False, None, True]),
        "time": pa.array([0, 1, None, 2], pa.timestamp("us")),
    }
    table = pa.table(columns)
    found = {name: [hex(h) for h in hash_rows(table, [name]).tolist()] for name in columns}
    assert found == EXPECTED


EXPECTED = {
    "text": ["0xa706dd2f4d197e6f", "0xb8747f9d0f7cfc27", "0xf725441d87a5fe5e", "0x12b6a7029e74712b"],
    "int": ["0xa706dd2f4d197e6f", "0x5dc20aa7b2a27137", "0xf725441d87a5fe5e", "0xbef149404c014d94"],
    "float": ["0xa706dd2f4d197e6f", "0x6a09d17eba9bf03e", "0xf725441d87a5fe5e", "0x5366251c28a3e1ff"],
    "bool": ["0x5e41ab087439611e", "0xa706dd2f4d197e6f", "0xf725441d87a5fe5e", "0x5e41ab087439611e"],
    "time": ["0xa706dd2f4d197e6f", "0x5e41ab087439611e", "0xf725441d87a5fe5e", "0x64684c4f0fd784b4"],
}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, 2, None], pa.int8()), pa.array([1, 2, None], pa.int64())),
        (pa.array([1, 2], pa.uint64()), pa.array([1, 2], pa.int32())),
        (pa.array(["a", None]), pa.array(["a", None], pa.large_string())),
        (pa.array(["a", None, "b"]), pa.array(["a", None, "b"]).dictionary_encode()),
        (pa.array(["a", "b"]), pa.array(["a", "b"], pa.string_view())),
        (pa.array([1, 2], pa.timestamp("s")), pa.array([1_000_000, 2_000_000], pa.timestamp("us"))),
        (pa.array([0.5, -0.0]), pa.array([0.5, 0.0], pa.float32())),
        (pa.array([dt.date(2013, 1, 1)]), pa.array([15706], pa.int64())),
        (pa.array([Decimal("1.50")]), pa.array([Decimal("1.50")], pa.decimal128(9, 2))),
    ],
)
def test_equal_keys_hash_alike_whatever_their_type(left: pa.Array, right: pa.Array) -> None:
    assert np.array_equal(hash_rows(pa.table({"k": left}), ["k"]), hash_rows(pa.table({"k": right}), ["k"]))


def test_keys_spread_evenly() -> None:
    for column in (
        pa.array([f"tag{i}" for i in range(8000)]),
        pa.array(range(8000)),
        pa.array(range(0, 8_000_000, 1000)),
    ):
        sizes = [part.num_rows for part in split(pa.table({"k": column}), ["k"], 8).values()]
        assert len(sizes) == 8 and max(sizes) < 1150 and min(sizes) > 850


def test_routes_of_the_other_groupings() -> None:
    table = pa.table({"k": [1, 2]})
    assert list(route(table, Grouping(Mode.SINGLE), 1, 4)) == [0]
    assert list(route(table, Grouping(Mode.FORWARD), 5, 4)) == [4]
    assert list(route(table, Grouping(Mode.BROADCAST), 3, 0)) == [0, 1, 2]
    assert route(table.slice(0, 0), Grouping(Mode.BROADCAST), 3, 0) == {}
    parts = route(table, Grouping(Mode.KEYS, ("k",)), 4, 0)
    assert {k: p.to_pylist() for k, p in parts.items()} == {
        k: p.to_pylist() for k, p in split(table, ["k"], 4).items()
    }


def test_null_is_a_key_and_an_integer_is_not_a_float() -> None:
    table = pa.table({"k": pa.array([None, 1, None, 2, None], pa.int64())})
    (of_nulls,) = (p for p in split(table, ["k"], 5).values() if p["k"].null_count)
    assert of_nulls["k"].null_count == 3
    as_float = pa.table({"k": table["k"].cast(pa.float64())})
    alike = hash_rows(table, ["k"]) == hash_rows(as_float, ["k"])
    assert alike.tolist() == [True, False, True, False, True]


def test_what_cannot_be_routed_is_named() -> None:
    table = pa.table({"k": [[1]], "s": ["x"]})
    for parallelism in (1, 2):
        with pytest.raises(RoutingError, match=r"'tag' is not in the output; its columns are \['k', 's'\]"):
            split(table, ["tag"], parallelism)
    with pytest.raises(RoutingError, match="'k': it holds list"):
        split(table, ["k"], 2)
