"""Map, filter, flat-map, union and sink: what they keep, in which order, and which parameters they refuse."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import Filter, FlatMap, Map, Sink, Union
from reprise.spark_jobs.operators.frames import ColumnError, canonical
from reprise.spark_jobs.operators.testing import as_bytes, inbox, run

ROWS = pa.table({"n": [3, 1, 2], "word": ["x y", "", "z"]})


def words(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("word").str.split(" "))


def not_a_frame(frame: pl.DataFrame) -> int:
    return frame.height


HERE = "spark_jobs_test_functions"


@pytest.fixture(autouse=True)
def functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """`module:function` finds the functions above under a fixed name, however the tests were imported."""
    import sys
    import types

    module = types.ModuleType(HERE)
    module.words, module.not_a_frame = words, not_a_frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, HERE, module)


def only(operator: Operator, *tables: pa.Table) -> list[dict[str, object]] | None:
    (out,) = run(operator, [inbox(1, {f"i{k}": t for k, t in enumerate(tables)})])
    return None if out is None else out.to_pylist()


def test_map_selects_by_list_or_by_mapping_and_filters_first() -> None:
    assert only(Map(select=["*", "n * 2 AS twice"], where="n >= 2"), ROWS) == [
        {"n": 3, "word": "x y", "twice": 6},
        {"n": 2, "word": "z", "twice": 4},
    ]
    assert only(Map(select={"half": "n / 2.0"}), ROWS) == [{"half": 1.5}, {"half": 0.5}, {"half": 1.0}]


def test_numbers_with_a_point_are_floats() -> None:
    (out,) = run(Map(select={"a": "0.5", "b": "n * 0.5", "c": "n / 2.0"}), [inbox(1, ROWS)])
    assert out is not None and set(out.schema.types) == {pa.float64()}


def test_filter_keeps_order_and_gives_nothing_for_no_rows() -> None:
    assert only(Filter(where="word <> ''"), ROWS) == [{"n": 3, "word": "x y"}, {"n": 2, "word": "z"}]
    assert only(Filter(where="n > 9"), ROWS) is None
    assert only(Filter(where="n > 9")) is None


def test_flat_map_explodes_lists_and_drops_rows_without_items() -> None:
    lists = pa.table({"n": [1, 2, 3, 4], "tags": [["a", "b"], [], None, ["c"]]})
    assert only(FlatMap(explode=["tags"], select=["n", "tags AS tag"]), lists) == [
        {"n": 1, "tag": "a"},
        {"n": 1, "tag": "b"},
        {"n": 4, "tag": "c"},
    ]
    assert only(FlatMap(explode=["tags"]), lists.slice(1, 2)) is None


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (pa.table({"a": [1], "b": [[1]]}), "column 'a' holds Int64 and no lists"),
        (pa.table({"a": [[1], None], "b": [[1], [1]]}), "lists of a, b are not equally long"),
        (pa.table({"a": [[1], []], "b": [[1], [1]]}), "lists of a, b are not equally long"),
        (pa.table({"a": [[1, 2]], "b": [[1]]}), "lists of a, b are not equally long"),
        (pa.table({"a": pa.array([1], pa.decimal256(50, 0))}), r"column 'a' holds decimal256\(50, 0\)"),
        (pa.table([[1], [1]], names=["a", "a"]), "several columns of the input have one name"),
    ],
)  # fmt: skip
def test_columns_that_a_flat_map_does_not_take_are_named(rows: pa.Table, reason: str) -> None:
    with pytest.raises(ColumnError, match=reason):
        run(FlatMap(explode=["a", "b"]), [inbox(1, rows)])


def test_fixed_size_lists_with_nulls_may_be_slices() -> None:
    lists = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))
    rows = pa.table({"v": lists, "s": pa.StructArray.from_arrays([lists], ["v"])})
    for batch in (rows.slice(1), pa.concat_tables([rows.slice(1, 1), rows.slice(2)])):
        assert only(Filter(where="v IS NULL OR v IS NOT NULL"), batch) == rows.to_pylist()[1:]


def test_functions_are_named_by_module() -> None:
    assert only(Map(function=f"{HERE}:words"), ROWS) == [
        {"n": 3, "word": ["x", "y"]},
        {"n": 1, "word": [""]},
        {"n": 2, "word": ["z"]},
    ]
    with pytest.raises(ColumnError, match="must return a polars DataFrame, not int"):
        only(Map(function=f"{HERE}:not_a_frame"), ROWS)


def test_union_takes_inputs_in_order_with_the_first_columns() -> None:
    other = pa.table({"word": pa.array(["q"]).dictionary_encode(), "n": [9], "more": [0]})
    assert only(Union(), ROWS.slice(0, 1), other) == [{"n": 3, "word": "x y"}, {"n": 9, "word": "q"}]
    assert only(Union(columns=["word"]), other, ROWS.slice(2)) == [{"word": "q"}, {"word": "z"}]
    with pytest.raises(ColumnError, match="no column 'more'"):
        only(Union(), other, ROWS)
    with pytest.raises(ColumnError, match="different columns"):
        only(Union(), ROWS, pa.table({"n": ["text"], "word": ["w"]}))


def test_sink_is_the_identity() -> None:
    assert only(Sink(), ROWS) == ROWS.to_pylist()


def test_strings_have_one_type_whatever_library_made_them() -> None:
    kinds = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())]
    for kind in kinds:
        table = canonical(pa.table({"s": pa.array(["a", None]).cast(kind), "n": [1, 2]}))
        assert table.schema.field("s").type == pa.string()
        assert table.column("s").to_pylist() == ["a", None]
    (out,) = run(Map(select=["word || '!' AS loud"]), [inbox(1, ROWS)])
    assert out is not None and out.schema.field("loud").type == pa.string()


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (Map, "select"),
        (lambda: Map(select="n"), "select"),
        (lambda: Map(select=["n +"]), "select[0]"),
        (lambda: Map(select=["*", "COLUMNS('n|word') / 2"]), "select[1]"),
        (lambda: Filter(where="*"), "where"),
        (lambda: Map(select={"x": "n +"}), "select.x"),
        (lambda: Map(select={"x": "*"}), "select.x"),
        (lambda: Filter(where="n >"), "where"),
        (lambda: Map(function="no_such_module:f"), "function"),
        (lambda: Map(function=f"{HERE}:wrods"), "function"),
        (FlatMap, "explode"),
    ],
)
def test_wrong_parameters_are_named(build: object, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        build()  # type: ignore[operator]
    assert caught.value.field == field


@pytest.mark.parametrize("operator", [Filter(where="m > 1"), Map(select=["m"]), FlatMap(explode=["m"])])
def test_a_missing_column_is_named_with_those_that_there_are(operator: Operator) -> None:
    with pytest.raises(ColumnError, match=r"m.*columns are n, word"):
        only(operator, ROWS)


MONEY = pa.decimal128(18, 2)


def _at(microseconds: int, days: int = 0) -> datetime:
    return datetime(1970, 1, 1) + timedelta(days=days, microseconds=microseconds)


NUMBERS = pa.table(
    {
        "i": pa.array([100_000, -3], pa.int32()),
        "b": pa.array([200, 1], pa.uint8()),
        "l": pa.array([2**63 - 1, 5], pa.int64()),
        "u": pa.array([2**64 - 1, 1], pa.uint64()),
        "a": pa.array([Decimal("1234567890123456.78"), None], MONEY),
        "q": pa.array([{"x": 2**31 - 1}, {"x": 1}], pa.struct([("x", pa.int32())])),
        "m": pa.array([[100, 100], [1]], pa.list_(pa.int8())),
        "t": pa.array([0, 86_400], pa.timestamp("s")),
        "w": pa.array([2**62, 2**62], pa.duration("us")),
    }
)


@pytest.mark.parametrize(
    ("expression", "kind", "values"),
    [
        ("i * i", pa.int64(), [10**10, 9]),
        ("b * b", pa.int64(), [40_000, 1]),
        ("-b", pa.int64(), [-200, -1]),
        ("l - 1", pa.int64(), [2**63 - 2, 4]),
        ("u - 1", pa.uint64(), [2**64 - 2, 0]),
        ("l % 7", pa.int64(), [(2**63 - 1) % 7, 5]),
        ("i", pa.int32(), [100_000, -3]),
        ("u", pa.uint64(), [2**64 - 1, 1]),
        ("i * 0.5", pa.float64(), [50_000.0, -1.5]),
        ("a", MONEY, [Decimal("1234567890123456.78"), None]),
        ("year(t) * 2000000", pa.int64(), [3_940_000_000] * 2),
        ("length(CAST(i AS VARCHAR)) * 900000000", pa.int64(), [5_400_000_000, 1_800_000_000]),
        ("CAST(i AS INT) * i", pa.int64(), [10**10, 9]),
        ("CASE WHEN i > 0 THEN year(t) ELSE 1 END * 2000000", pa.int64(), [3_940_000_000, 2_000_000]),
        ("q.x * q.x", pa.int64(), [(2**31 - 1) ** 2, 1]),
        ("m[1] * m[1]", pa.int64(), [10_000, 1]),
        ("array_sum(m)", pa.int64(), [200, 1]),
        ("array_unique(m)[1] * 100", pa.int64(), [10_000, 100]),
        ("i + 2000000 * 2000000", pa.int64(), [4 * 10**12 + 100_000, 4 * 10**12 - 3]),
        ("l * l // l", pa.int64(), [2**63 - 1, 5]),
        ("abs(CAST(72 - b AS TINYINT))", pa.int64(), [128, 71]),
        ("pow(i, 2)", pa.float64(), [1e10, 9.0]),
        ("a / 3", pa.float64(), [411522630041152.26, None]),
        ("t + INTERVAL '1 microsecond'", pa.timestamp("us"), [_at(1), _at(1, days=1)]),
        ("t + INTERVAL '1 nanosecond' > t", pa.bool_(), [True, True]),
        (
            "CAST(t AS DATE) + (t - TIMESTAMP '1970-01-01 00:00:01')",
            pa.timestamp("us"),
            [_at(-(10**6)), _at(-(10**6), days=2)],
        ),
        ("CAST(t AS DATE) + INTERVAL '1 second'", pa.timestamp("us"), [_at(10**6), _at(10**6, days=1)]),
    ],
)
def test_numbers_are_exact_whatever_the_column_is_called(
    expression: str, kind: pa.DataType, values: list[Any]
) -> None:
    for select in ([f"{expression} AS x"], {"x": expression}):
        (out,) = run(Map(select=select), [inbox(1, NUMBERS)])
        assert out is not None
        assert (out["x"].type, out["x"].to_pylist()) == (kind, values)


@pytest.mark.parametrize(
    "expression", ["a + 1", "-a", "COALESCE(a, 0)", "CASE WHEN i > 0 THEN a END", "a + a"]
)
def test_what_is_made_of_decimals_is_one(expression: str) -> None:
    (out,) = run(Map(select=[f"{expression} AS x"]), [inbox(1, NUMBERS)])
    assert out is not None
    assert pa.types.is_decimal(out["x"].type)
    assert out["x"].type.scale == 2


@pytest.mark.parametrize(
    "expression", ["l + 1", "u * 2", "b - u", "l * l", "2000000 * 2000000 * 2000000 * 2"]
)
def test_a_whole_number_beyond_64_bits_is_refused(expression: str) -> None:
    with pytest.raises(ColumnError, match=r"'x': a whole number is beyond u?int64"):
        run(Map(select=[f"{expression} AS x"]), [inbox(1, NUMBERS)])


@pytest.mark.parametrize(
    "expression",
    ["i / 60", "x / 60.0", "x / COALESCE(j, 3)", "x / CASE WHEN i > 0 THEN 3 ELSE 7 END", "f / 3", "a / 3"],
)
def test_a_quotient_is_the_same_in_any_batch(expression: str) -> None:
    x = np.random.default_rng(1).random(60) * 1000
    rows = pa.table(
        {
            "i": [459] * 60,
            "x": x,
            "j": pa.nulls(60, pa.int64()),
            "f": pa.array(x.astype(np.float32)),
            "a": pa.array([f"{v:.2f}" for v in x]).cast(pa.decimal128(9, 2)),
        }
    )
    operator = Map(select={"v": expression})
    (whole,) = run(operator, [inbox(1, rows)])
    single = [run(operator, [inbox(1, rows.slice(n, 1))])[0] for n in range(60)]
    assert whole is not None
    assert as_bytes(whole) == as_bytes(pa.concat_tables(one for one in single if one is not None))
    if expression == "i / 60":
        assert whole["v"][0].as_py() == 7.65


def test_a_filter_compares_what_would_wrap_around_and_changes_no_type() -> None:
    (out,) = run(Filter(where="i * i * i > 5 AND b + 100 > 255"), [inbox(1, NUMBERS)])
    assert out is not None
    assert out.schema == NUMBERS.schema
    assert out["i"].to_pylist() == [100_000]


@pytest.mark.parametrize(
    "operator", [Map(select=["s > 5 AS x"]), Filter(where="l"), Map(select=["s + i AS x"])]
)
def test_what_polars_refuses_is_said_with_the_columns(operator: Operator) -> None:
    rows = NUMBERS.append_column("s", pa.array(["a", "b"]))
    with pytest.raises(ColumnError, match="the input's columns are i Int32, b UInt8"):
        run(operator, [inbox(1, rows)])


@pytest.mark.parametrize(
    "kind",
    [
        pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.duration("s"), pa.timestamp("s"), pa.binary(),
        pa.list_(pa.string()), pa.list_(pa.int32()), pa.date32(), pa.float32(), pa.decimal128(5, 2), pa.string(),
    ],
    ids=str,
)  # fmt: skip
def test_columns_that_are_taken_as_they_are_keep_their_types(kind: pa.DataType) -> None:
    rows = pa.table({"k": pa.nulls(2).cast(kind), "x": [1, 2], "l": [["a"], ["b", "c"]]})
    for operator, name in (
        (Filter(where="x > 0"), "k"),
        (Map(select=["*", "x + 1 AS y"]), "k"),
        (Map(select={"other": "k"}), "other"),
        (FlatMap(explode=["l"]), "k"),
    ):
        (out,) = run(operator, [inbox(1, rows)])
        assert out is not None
        assert out.schema.field(name).type == kind


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("0", pa.int64()),
        ("CASE WHEN i > 0 THEN 1 ELSE 0 END", pa.int64()),
        ("LENGTH(CAST(i AS VARCHAR))", pa.int64()),
        ("LENGTH('cast(')", pa.int64()),
        ("i / 60.0", pa.float64()),
        ("a * 0.5", pa.float64()),
        ("i * 0.908", pa.float64()),
        ("COALESCE(a, 0.5)", pa.float64()),
        ("CASE WHEN a > 0.5 THEN a ELSE 0 END", pa.decimal128(38, 2)),
        ("CASE WHEN i > 0 THEN 1 ELSE 0.5 END", pa.float64()),
        ("(t - t) * i + (t - t)", pa.duration("ms")),
        ("CAST(0.1 AS DECIMAL(10, 2))", pa.decimal128(10, 2)),
        ("CAST(l AS INT)", pa.int32()),
        ("CAST(b AS INT)", pa.int32()),
    ],
)
def test_what_is_computed_is_an_int64_but_for_casts(expression: str, kind: pa.DataType) -> None:
    (out,) = run(Map(select=[f"{expression} AS x"]), [inbox(1, NUMBERS.slice(1))])
    assert out is not None
    assert out["x"].type == kind


def test_a_number_with_a_point_is_a_float_but_in_texts_and_names() -> None:
    rows = pa.table({"x": [1], "1.5": [7]})
    (out,) = run(
        Map(select=["x / 60.0 AS q", '"1.5" AS n', "'it''s 2.5' AS t", "x * .5 AS h /* 9.9 */"]),
        [inbox(1, rows)],
    )
    assert out is not None
    assert out.to_pylist() == [{"q": 1 / 60, "n": 7, "t": "it's 2.5", "h": 0.5}]


@pytest.mark.parametrize(("expression", "value"), [("1", 1), ("'x' || 'y'", "xy")])
def test_each_row_gives_one_though_no_column_is_named(expression: str, value: Any) -> None:
    assert only(Map(select={"x": expression}), ROWS) == [{"x": value}] * ROWS.num_rows
    assert only(Map(select={"x": expression}, where="n > 99"), ROWS) is None


def test_date_and_time_of_day_are_those_of_the_zone() -> None:
    evening = pa.table({"t": pa.array([1_761_431_400, -1]).cast(pa.timestamp("s", "Europe/Berlin"))})
    select = ["CAST(t AS DATE)::TEXT AS d", "CAST(t AS TIME)::TEXT AS c"]
    assert only(Map(select=select), evening) == [
        {"d": "2025-10-26", "c": "00:30:00"},
        {"d": "1970-01-01", "c": "00:59:59"},
    ]


def test_a_filter_compares_decimals_exactly() -> None:
    rows = pa.table({"a": pa.array([Decimal("1234567890123456.78"), Decimal("1234567890123456.79")], MONEY)})
    (out,) = run(Filter(where="a > 1234567890123456.78"), [inbox(1, rows)])
    assert out is not None
    assert out.num_rows == 1


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("l * l * l", "more than 38 digits"),
        ("l * l * l / l", "more than 38 digits"),
        ("u * u", "more than 38 digits"),
        ("i = f", "38 digits .15 where it meets a float"),
        ("f > 9007199254740993", "38 digits .15 where it meets a float"),
        ("i IN (1e0, 2)", "38 digits .15 where it meets a float"),
        ("array_contains(g, f)", "38 digits .15 where it meets a float"),
        ("a > f", "'a' holds decimals and is compared with a float; write CAST"),
        ("q.a > f", "'q' holds decimals and is compared"),
        ("a * 0.5 > f", "'a' holds decimals and is compared with a float; write CAST"),
        ("n > TIMESTAMP '2500-01-01 00:00:00'", "a time is beyond nanoseconds"),
        ("d = n", "a time is beyond nanoseconds"),
        ("COALESCE(i, f)", "38 digits .15 where it meets a float"),
        ("CASE WHEN f > 0 THEN i ELSE 0.5 END", "38 digits .15 where it meets a float"),
        ("greatest(f * 0.5, i)", "38 digits .15 where it meets a float"),
        ("d > '2026-01-31'", "a time is compared with text; write DATE"),
        ("n BETWEEN '2026-01-31' AND '2026-02-01'", "a time is compared with text; write DATE"),
        ("CAST(s AS BIGINT)", "conversion from `str`"),
        ("g * 2", "lists are not added or multiplied"),
        ("CAST(s AS DATE)", r"write DATE.x, '%Y-%m-%d'"),
        ("w + w", "a time beyond 64 bits"),
        ("w * 2", "a time beyond 64 bits"),
    ],
)
def test_what_cannot_be_exact_is_refused_in_each_operator(expression: str, reason: str) -> None:
    rows = NUMBERS.slice(0, 1).append_column("f", pa.array([2.0**53]))
    rows = rows.set_column(0, "i", pa.array([2**53 + 1])).append_column("d", pa.array([date(9999, 1, 1)]))
    rows = rows.append_column("n", pa.array([1], pa.timestamp("ns")))
    rows = rows.append_column("g", pa.array([[2**53 + 1]]))
    rows = rows.append_column("s", pa.array(["text"]))
    rows = rows.set_column(5, "q", pa.StructArray.from_arrays([rows["a"].chunk(0)], ["a"]))
    for operator in (Map(select={"x": expression}), Filter(where=f"{expression} IS NOT NULL")):
        with pytest.raises(ColumnError, match=reason):
            run(operator, [inbox(1, rows)])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("i = f", [False, True]),
        ("CAST(i AS DOUBLE) = f", [False, True]),
        ("i IN (1.5, 2)", [True, False]),
        ("n = t", [False, True]),
        ("n > t", [True, False]),
        ("n - t > 0 * (n - t)", [True, False]),
        ("coalesce(n, t) = t", [False, True]),
        ("n = TIMESTAMP '1970-01-01 00:00:00'", [False, False]),
        ("n IN (TIMESTAMP '1970-01-01 00:00:01')", [False, True]),
        ("z > DATE '1970-01-01'", [False, True]),
        ("z > TIMESTAMP '1970-01-01 00:00:00'", [False, True]),
        ("z = y", [True, True]),
        ("coalesce(y, z) - t = 0 * (t - t)", [True, True]),
        ("a = b", [False, True]),
        ("f > 0.5", [False, True]),
    ],
)
def test_what_is_compared_is_not_rounded(expression: str, expected: list[bool]) -> None:
    rows = pa.table(
        {
            "i": [2, 1],
            "f": [0.5, 1.0],
            "n": pa.array([1, 10**9], pa.timestamp("ns")),
            "t": pa.array([0, 10**6], pa.timestamp("us")),
            "z": pa.array([0, 1], pa.timestamp("s", "UTC")),
            "y": pa.array([0, 10**9], pa.timestamp("ns", "Asia/Kathmandu")),
            "a": pa.array([Decimal("9007199254740993.00"), Decimal(1)], MONEY),
            "b": pa.array([Decimal("9007199254740993.001"), Decimal(1)], pa.decimal128(20, 3)),
        }
    )
    (out,) = run(Map(select={"x": expression}), [inbox(1, rows)])
    assert out is not None
    assert out["x"].to_pylist() == expected


def test_a_column_without_a_name_changes_nothing() -> None:
    rows = pa.table({"": [0, 1], "x": [1, 2]})
    (out,) = run(Map(select=["x / 2 AS half"]), [inbox(1, rows)])
    assert out is not None
    assert out["half"].to_pylist() == [0.5, 1.0]


def test_types_that_arrow_cannot_bring_back_stay_as_polars_has_them() -> None:
    rows = pa.table({"d": pa.array([1, 2]).dictionary_encode(), "x": [1, 2]})
    (out,) = run(Filter(where="x > 1"), [inbox(1, rows)])
    assert out is not None
    assert out["d"].to_pylist() == [2]


def test_products_with_a_number_with_a_point_are_those_of_decimals() -> None:
    (out,) = run(Map(select=["x * 0.908 AS p"]), [inbox(1, pa.table({"x": [12965]}))])
    assert out is not None
    assert out["p"].to_pylist() == [11772.22], "and not 11772.220000000001"
