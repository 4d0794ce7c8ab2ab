"""Decimals and numbers beyond 2^63 are summed, compared and ranked exactly, by each operator, also behind a checkpoint.

The definition is the same operator over whole numbers: cents for decimals, numbers less 2^63 for unsigned ones.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.operators import (
    CountWindow,
    KeyedAggregate,
    RunningAggregate,
    SessionWindow,
    SlidingWindow,
    TopK,
    TumblingWindow,
)
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.paged import PagedOperator, freezer
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, run
from reprise.spark_jobs.state.page_file import decode_pages, encode_pages
from tests.support.examples import examples

MONEY = pa.decimal128(18, 2)
EXACT = {"n": "count(v)", "s": "sum(v)", "low": "min(v)", "high": "max(v)"}
ALL = {**EXACT, "m": "mean(v)"}
ORDER = {"n": "count(v)", "low": "min(v)", "high": "max(v)"}
Make = Callable[[dict[str, str]], Operator]
AGGREGATING: dict[str, Make] = {
    "keyed": lambda forms: KeyedAggregate(keys=["k"], aggregate=forms),
    "running": lambda forms: RunningAggregate(keys=["k"], aggregate=forms),
    "tumbling": lambda forms: TumblingWindow(size="2us", aggregate=forms, keys=["k"]),
    "sliding": lambda forms: SlidingWindow(
        size="4us", slide="2us", aggregate=forms, keys=["k"], emit="updates"
    ),
    "session": lambda forms: SessionWindow(gap="2us", aggregate=forms, keys=["k"]),
    "count": lambda forms: CountWindow(size=2, aggregate=forms, keys=["k"]),
}
Rows = list[tuple[str, int | None]]
streams = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-(10**15), 10**15)), max_size=4),
    min_size=1,
    max_size=5,
)


def inboxes(stream: list[Rows], kind: pa.DataType, of: Callable[[int], Any]) -> list[Inbox]:
    """A batch of each list; a batch without a value has a column without a type."""
    found = []
    for n, rows in enumerate(stream, 1):
        values = [None if v is None else of(v) for _, v in rows]
        of_kind = kind if any(v is not None for v in values) else pa.null()
        columns = {
            "k": pa.array([k for k, _ in rows], pa.string()),
            "v": pa.array(values, of_kind),
            "time": pa.array([n] * len(rows), pa.int64()),
        }
        found.append(inbox(n, pa.table(columns), watermark=n))
    return [*found, inbox(len(stream) + 1, {}, watermark=1 << 62)]


def cents(value: int) -> Decimal:
    return Decimal(value).scaleb(-2)


@pytest.mark.parametrize("name", AGGREGATING)
@examples(16)
@given(stream=streams)
def test_decimals_give_what_whole_cents_give(name: str, stream: list[Rows]) -> None:
    make = AGGREGATING[name]
    money = inboxes(stream, MONEY, cents)
    whole = run(make(ALL), inboxes(stream, pa.int64(), int))
    for wanted, found in zip(whole, run(make(ALL), money), strict=True):
        expected = [] if wanted is None else wanted.to_pylist()
        for row in expected:
            row |= {name: cents(row[name]) for name in ("s", "low", "high") if row[name] is not None}
            row["m"] = None if row["m"] is None else pytest.approx(row["m"] / 100)
        assert ([] if found is None else found.to_pylist()) == expected
    check_recovery(make(EXACT), money)


def of_a(keys: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Key `a` belongs to the first of two partitions."""
    return np.array([int(k != "a") for k in keys["k"].to_pylist()], np.int64)


@pytest.mark.parametrize("name", [name for name in AGGREGATING if name != "running"])
@examples(16)
@given(stream=streams, cut=st.integers(1, 5), paged=st.booleans())
def test_decimals_go_on_behind_pages_and_behind_another_number_of_partitions(
    name: str, stream: list[Rows], cut: int, paged: bool
) -> None:
    operator, batches = AGGREGATING[name](EXACT), inboxes(stream, MONEY, cents)
    state = operator.initial(PLACE)
    for each in batches[:cut]:
        state, _ = operator.step(state, each)
    if paged and isinstance(operator, PagedOperator):
        found = encode_pages(freezer(operator, True)(state)(), "1", 1)
        data = b"".join(bytes(chunk) for chunk in found.chunks)
        tables = decode_pages(data, lambda _path, span: span.whole(data[span.start : span.end]))
    else:
        tables = operator.merge_states(operator.split_state(operator.freeze(state)(), of_a, 2))
    again = operator.restore(PLACE, tables)
    for each in batches[cut:]:
        state, wanted = operator.step(state, each)
        again, out = operator.step(again, each)
        as_sets = [sorted(map(str, [] if t is None else t.to_pylist())) for t in (wanted, out)]
        assert as_sets[0] == as_sets[1]


@pytest.mark.parametrize("name", AGGREGATING)
@examples(16)
@given(stream=streams)
def test_numbers_beyond_2_63_are_compared_as_they_are(name: str, stream: list[Rows]) -> None:
    make = AGGREGATING[name]
    large = inboxes(stream, pa.uint64(), lambda v: v + 2**63)
    for wanted, found in zip(
        run(make(ORDER), inboxes(stream, pa.int64(), int)), run(make(ORDER), large), strict=True
    ):
        expected = [] if wanted is None else wanted.to_pylist()
        for row in expected:
            row |= {name: row[name] + 2**63 for name in ("low", "high") if row[name] is not None}
        assert ([] if found is None else found.to_pylist()) == expected
    check_recovery(make(ORDER), large)


@pytest.mark.parametrize("scope", ["stream", "batch"])
@pytest.mark.parametrize(
    ("kind", "of", "back"),
    [(MONEY, cents, lambda v: int(v * 100)), (pa.uint64(), lambda v: v + 2**63, lambda v: v - 2**63)],
    ids=["decimals", "unsigned"],
)
@examples(16)
@given(stream=streams)
def test_the_greatest_are_ranked_as_whole_numbers_are(
    scope: str, kind: pa.DataType, of: Callable[[int], Any], back: Callable[[Any], int], stream: list[Rows]
) -> None:
    stream = [rows for rows in stream if any(v is not None for _, v in rows)]
    top = TopK(k=2, by="v", keys=["k"], scope=scope, positive=False)
    exact = inboxes(stream, kind, of)
    for wanted, found in zip(run(top, inboxes(stream, pa.int64(), int)), run(top, exact), strict=True):
        assert (wanted is None) == (found is None)
        if wanted is not None and found is not None:
            assert found.schema.field("v").type == kind
            assert [{**row, "v": back(row["v"])} for row in found.to_pylist()] == wanted.to_pylist()
    check_recovery(top, exact)


def one(values: list[Any], kind: pa.DataType, form: str) -> Any:
    (out,) = run(
        KeyedAggregate(keys=[], aggregate={"x": form}), [inbox(1, pa.table({"v": pa.array(values, kind)}))]
    )
    assert out is not None
    return out["x"]


@pytest.mark.parametrize(
    ("values", "kind", "form", "told"),
    [
        (["0.10", "0.20", "0.30"], MONEY, "sum(v)", ("0.60", pa.decimal128(28, 2))),
        (["90071992547409.93", "0.01"], MONEY, "sum(v)", ("90071992547409.94", pa.decimal128(28, 2))),
        (["9999999999999999.99", "-1"], MONEY, "max(v)", ("9999999999999999.99", MONEY)),
        (["9999999999999999.99", "-1"], MONEY, "min(v)", ("-1.00", MONEY)),
        (["1", "-2"], pa.decimal128(38, 0), "sum(v)", ("-1", pa.decimal128(38, 0))),
        (["1.5", None], pa.decimal256(40, 1), "sum(v)", ("1.5", pa.decimal128(38, 1))),
    ],
)
def test_a_decimal_stays_one(values: list[Any], kind: pa.DataType, form: str, told: tuple[str, Any]) -> None:
    found = one([None if v is None else Decimal(v) for v in values], kind, form)
    assert (str(found[0].as_py()), found.type) == told


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([Decimal(10) ** 20], pa.decimal128(38, 2)),
        ([Decimal(10) ** 50], pa.decimal256(60, 2)),
        ([Decimal(9 * 10**16)] * 2, pa.decimal128(20, 2)),
        ([2**64 - 1, 1], pa.uint64()),
    ],
)
def test_what_64_bits_do_not_hold_is_refused(values: list[Any], kind: pa.DataType) -> None:
    with pytest.raises(ColumnError, match=r"64 bits.*floats"):
        one(values, kind, "sum(v)")


def test_a_sum_of_large_numbers_is_exact() -> None:
    assert one([2**63, 2**63 - 1], pa.uint64(), "sum(v)").to_pylist() == [2**64 - 1]


@pytest.mark.parametrize("name", AGGREGATING)
@pytest.mark.parametrize("kinds", [(MONEY, pa.int64()), (pa.int64(), MONEY), (MONEY, pa.decimal128(18, 3))])
def test_a_column_that_changes_its_type_is_refused(name: str, kinds: tuple[pa.DataType, ...]) -> None:
    one = pa.array([1], pa.decimal128(38, 3))
    batches = [
        inbox(n, pa.table({"k": ["a"], "v": one.cast(kind), "time": [1]})) for n, kind in enumerate(kinds, 1)
    ]
    with pytest.raises(ColumnError, match=r"'v' (has decimals in some|changed its precision)"):
        run(AGGREGATING[name](EXACT), batches)


@pytest.mark.parametrize("name", AGGREGATING)
@pytest.mark.parametrize("kinds", [(MONEY, pa.int64()), (pa.int64(), MONEY), (MONEY, pa.decimal128(18, 3))])
def test_a_type_that_changes_with_another_key_is_refused(name: str, kinds: tuple[pa.DataType, ...]) -> None:
    one = pa.array([1], pa.decimal128(38, 3))
    batches = [
        inbox(n, pa.table({"k": [key], "v": one.cast(kind), "time": [1]}))
        for n, (key, kind) in enumerate(zip("ab", kinds, strict=True), 1)
    ]
    with pytest.raises(ColumnError, match=r"'v' (has decimals in some|changed its precision)"):
        run(AGGREGATING[name](EXACT), batches)


def test_partitions_with_decimals_of_two_types_are_not_put_together() -> None:
    for name in ("keyed", "tumbling", "sliding", "session", "count"):
        make, parts = AGGREGATING[name], []
        for kind in (MONEY, pa.decimal128(18, 3)):
            operator = make(EXACT)
            rows = pa.table({"k": ["a"], "v": pa.array([1], pa.decimal128(38, 3)).cast(kind), "time": [1]})
            state, _ = operator.step(operator.initial(PLACE), inbox(1, rows))
            parts.append(operator.freeze(state)())
        with pytest.raises(ColumnError, match=r"'v' (has|changed)"):
            make(EXACT).merge_states(parts)


def test_a_window_that_keys_have_left_gives_decimals() -> None:
    operator = SlidingWindow(size="4us", slide="2us", aggregate={"s": "sum(v)"}, keys=["k"], emit="updates")
    money = pa.array([Decimal("1.50")], MONEY)
    batches = [
        inbox(1, pa.table({"k": ["a"], "v": money, "time": [1]}), watermark=2),
        inbox(2, pa.table({"k": ["b"], "v": money, "time": [20]}), watermark=20),
    ]
    kinds = {out.schema.field("s").type for out in run(operator, batches) if out is not None}
    assert kinds == {pa.decimal128(28, 2)}


@pytest.mark.parametrize(
    "kind", [pa.decimal128(5, -2), pa.decimal256(70, 60), pa.decimal128(38, 38)], ids=str
)
def test_scales_of_every_sign_and_length(kind: pa.DataType) -> None:
    whole = pa.array([123, -23], pa.decimal128(19, 0))
    values = whole.cast(pa.decimal256(76, 0)).view(pa.decimal256(76, kind.scale)).cast(kind)
    if kind.scale > 38:
        with pytest.raises(ColumnError, match="64 bits"):
            one(values, kind, "sum(v)")
    else:
        assert one(values, kind, "sum(v)").to_pylist() == [Decimal(100).scaleb(-kind.scale)]


def test_an_aggregate_over_decimals_may_come_later() -> None:
    rows = inbox(1, pa.table({"k": ["a"], "v": pa.array([Decimal(1)], MONEY)}))
    before = KeyedAggregate(keys=["k"], aggregate={"n": "count(v)"})
    state, _ = before.step(before.initial(PLACE), rows)
    after = KeyedAggregate(keys=["k"], aggregate={"n": "count(v)", "s": "sum(v)"})
    state, out = after.step(after.restore(PLACE, before.freeze(state)()), rows)
    assert out is not None
    assert out.to_pylist() == [{"k": "a", "n": 2, "s": Decimal(1)}]
