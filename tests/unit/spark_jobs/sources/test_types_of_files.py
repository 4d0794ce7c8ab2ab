"""What columns of files hold: no value of a file changes by being read, and what cannot be read is said in words."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.errors import DataPlaneError, SpecError
from reprise.spark_jobs.operators.frames import times
from reprise.spark_jobs.sources import EventTimeReplay, FileSource, TableError
from reprise.spark_jobs.sources.tables import load_files
from reprise.spark_jobs.sources.text_types import is_exact
from tests.support.examples import examples

IN = Place("in", 0, 1)


Written = Callable[..., str]


def column(*paths: str, name: str = "v") -> tuple[pa.DataType, list[Any]]:
    found = load_files(paths)[name]
    return found.type, found.to_pylist()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1", "-2"], pa.int64(), [1, -2]),
        (["9223372036854775807", "1"], pa.int64(), [2**63 - 1, 1]),
        (["9223372036854775809", "9223372036854775810", "17"], pa.uint64(), [2**63 + 1, 2**63 + 2, 17]),
        (["18446744073709551616", "1"], pa.string(), None),
        (["9223372036854775809", "-1"], pa.string(), None),
        (["01067", "80331"], pa.string(), None),
        (["+49", "1"], pa.string(), None),
        (["0x1F", "1"], pa.string(), None),
        (["1.5", "2"], pa.float64(), [1.5, 2.0]),
        (["0.30000000000000004"], pa.float64(), [0.1 + 0.2]),
        (["9007199254740993", "0.5"], pa.string(), None),
        (["90071992547409.95", "90071992547409.94"], pa.float64(), [90071992547409.95, 90071992547409.94]),
        (["9999999999999999.99"], pa.string(), None),
        (["1.000000000000000056e-01", "0.10000000000000001"], pa.float64(), [0.1, 0.1]),
        ([".5", "5.", "-1E3"], pa.float64(), [0.5, 5.0, -1000.0]),
        (["1e99999999999999999999"], pa.string(), None),
        (["1", "n/a", "#N/A"], pa.int64(), [1, None, None]),
        (["1e400"], pa.string(), None),
        (["007.5"], pa.string(), None),
        (["true", "false"], pa.bool_(), [True, False]),
        (["2025-03-01"], pa.date32(), [date(2025, 3, 1)]),
        (["2025-02-29"], pa.string(), None),
        (["2025-03-01", "2025-03-01T12:00:00Z"], pa.timestamp("us", "UTC"), [
            datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 3, 1, 12, tzinfo=UTC)]),
        (["2025-03-01 12:00", "2025-03-01"], pa.timestamp("us"), [datetime(2025, 3, 1, 12), datetime(2025, 3, 1)]),
        (["2025-03-01T00:00:00.1234567891Z"], pa.string(), None),
        (["2025-03-01T00:00:00.1234567Z", "1500-03-01"], pa.string(), None),
        (["2025-03-01T00:00:00.1230000Z", "1500-03-01"], pa.timestamp("us", "UTC"), [
            datetime(2025, 3, 1, 0, 0, 0, 123_000, tzinfo=UTC), datetime(1500, 3, 1, tzinfo=UTC)]),
        (["2025-03-01 12:00:00 Z", "2025-03-01 12:00 +0200", "2025-03-01T12:00:00.5 -01"], pa.timestamp("us", "UTC"), [
            datetime(2025, 3, 1, hour, 0, 0, us, UTC) for hour, us in ((12, 0), (10, 0), (13, 500_000))]),
        (["2025-03-30T01:30:00.125+01:00", "2025-03-30 00:30"], pa.timestamp("us", "UTC"), [
            datetime(2025, 3, 30, 0, 30, 0, 125_000, tzinfo=UTC), datetime(2025, 3, 30, 0, 30, tzinfo=UTC)]),
        (["1", "", "NA"], pa.int64(), [1, None, None]),
        ([" 1", "2 "], pa.int64(), [1, 2]),
        (["", ""], pa.null(), [None, None]),
        (["a", "", "NA"], pa.string(), None),
    ],
)  # fmt: skip
def test_the_type_of_a_csv_column_holds_each_of_its_values(
    written: Written, values: list[str], kind: pa.DataType, expected: list[Any] | None
) -> None:
    """`expected` None: the text itself."""
    path = written("a.csv", "v,w\n" + "".join(f'"{value}",x\n' for value in values))
    assert column(path) == (kind, values if expected is None else expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**63 + 1, 17], pa.uint64()),
        ([3, 3.25], pa.float64()),
        (["2025-03-01"], pa.string()),
        (["01"], pa.string()),
        ([None, True], pa.bool_()),
        ([[1, 2], None], pa.list_(pa.int64())),
        ([{"a": 0.5}], pa.struct([("a", pa.float64())])),
        ([None, [{"a": 2**63}], [{"a": 1}, None], []], pa.list_(pa.struct([("a", pa.uint64())]))),
    ],
)
def test_the_type_of_a_json_column_is_that_of_its_values(
    written: Written, values: list[Any], kind: pa.DataType
) -> None:
    path = written("a.jsonl", "".join(json.dumps({"v": value}) + "\n" for value in values))
    assert column(path) == (kind, values)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            '{"v": 9007199254740993}\n{"v": 0.5}',
            "column 'v': a double does not hold 9007199254740993: declare",
        ),
        ('{"v": [18446744073709551616]}', r"'v' has whole .*, as 18446744073709551616: declare its type"),
        (
            '{"v": {"a": 18446744073709551616}}',
            "'v.a' has whole .*, as 18446744073709551616: write it as text",
        ),
        ('{"v": 12345678901234567.12}', "column 'v': a double does not hold 12345678901234567.12: declare"),
        ('{"v": 1e400}', "a double does not hold"),
        ('{"v": 1}\n{"v": "x"}', r"column 'v' has numbers \(1\) and text \('x'\): write its values alike"),
        ('{"v": [1.5, true]}', r"column 'v' has numbers \(1.5\) and truth values \(True\): write"),
        ('{"v": 1}\n{"v": {"a": 1}}', "column 'v' has numbers .* and objects"),
        ('{"v": NaN}', "line 1: NaN is no number of JSON"),
        (f'{{"v": {"9" * 5000}}}', "line 1: a number has 5000 digits: write it as text"),
        (f'{{"v": {"9" * 5000}.5}}', r"a double does not hold 9{60}\.\.\.: declare"),
        ('{"v": 1}\n[1]', r"line 2 is \[1\], and a row is an object"),
        ('{"v": 1}\n{"v":', "line 2 is not JSON from character 6 on"),
        (r'{"v": "\ud800"}', r"a.jsonl: \\ud800 is half of a character: write it whole"),
        ("[" * 100_000, "line 1 is nested too deeply"),
    ],
)
def test_json_that_no_type_holds_is_refused(written: Written, lines: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        load_files((written("a.jsonl", lines),))


@pytest.mark.parametrize(
    ("first", "second", "kind", "expected"),
    [
        ("a.csv", "b.csv", pa.float64(), [10.0, 10.5]),
        ("a.jsonl", "b.jsonl", pa.float64(), [10.0, 10.5]),
    ],
)
def test_types_are_those_of_all_files_together(
    written: Written, first: str, second: str, kind: pa.DataType, expected: list[float]
) -> None:
    def content(name: str, value: str) -> str:
        return f"v\n{value}\n" if name.endswith("csv") else f'{{"v": {value}}}\n'

    paths = written(first, content(first, "10")), written(second, content(second, "10.5"))
    assert column(*paths) == (kind, expected)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_declared_types_are_those_that_come_out(written: Written, tmp_path: Path, name: str) -> None:
    rows = {
        "amount": ["12.30", "0.10"],
        "id": [1, 2],
        "at": ["2025-03-01T00:00:00Z", "1969-12-31T23:59:59.5Z"],
    }
    path = str(tmp_path / name)
    if name == "a.csv":
        written(name, "id,amount,at\n1,12.30,2025-03-01T00:00:00Z\n2,0.10,1969-12-31T23:59:59.5Z\n")
    elif name == "a.jsonl":
        written(name, "".join(f'{{"id": {i}, "amount": {a}, "at": "{t}"}}\n' for i, a, t in zip(
            rows["id"], rows["amount"], rows["at"], strict=True)))  # fmt: skip
    else:
        moments = pa.array([1740787200_000_000, -500_000], pa.timestamp("us", "UTC"))
        table = {"id": pa.array(rows["id"], pa.int32()), "at": moments}
        amounts = pa.array(map(Decimal, rows["amount"]), pa.decimal128(20, 4))
        pq.write_table(pa.table({**table, "amount": amounts}), path)
    load_files.cache_clear()
    columns = {"amount": "decimal(18, 2)", "at": "timestamp[us, UTC]", "id": "int64"}
    found = FileSource(paths=[path], rows=9, columns=columns).read(IN, 1, Range(0, 2))
    assert found.schema == pa.schema(
        [("amount", pa.decimal128(18, 2)), ("at", pa.timestamp("us", "UTC")), ("id", pa.int64())]
    )
    assert found["amount"].to_pylist() == [Decimal("12.30"), Decimal("0.10")]
    assert times(found, "at").tolist() == [1740787200_000_000, -500_000]


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("a.csv", "v\n1.5\n", "int64", "column 'v' is int64, and '1.5' is none"),
        ("a.csv", "v\n0x1F\n", "int64", "column 'v' is int64, and '0x1F' is none"),
        ("a.csv", "v\n1.505\n", "decimal(10, 2)", r"column 'v' is decimal\(10, 2\), and '1.505' is none"),
        ("a.csv", "v\n" + "9" * 39, "decimal(38, 0)", "and '9{39}' is none"),
        ("a.csv", "v\n-11.5\n", "decimal(38, 38)", "and '-11.5' is none"),
        ("a.csv", "v\n1e-99\n", "decimal(18, 2)", "and '1e-99' is none"),
        ("a.jsonl", '{"v": 1e-99}', "decimal(18, 2)", "and '1E-99' is none"),
        (
            "a.csv",
            'v\n"1,50"\n',
            "double",
            "column 'v' is double, and '1,50' is none: the decimal sign is a point",
        ),
        (
            "a.csv",
            "v\n12:30:00\n",
            "time64[us]",
            "'v' is time64.us., which is not read from text: declare it as",
        ),
        (
            "a.jsonl",
            '{"v": "5"}',
            "duration[s]",
            "'v' is duration.s., which is not read from text: declare it as",
        ),
        ("a.csv", "v\n2025-02-30\n", "date32", "column 'v' is date32, and '2025-02-30' is none"),
        (
            "a.csv",
            "v\n2025-01-01T00:00+25:00",
            "timestamp[us]",
            "'2025-01-01T00:00.25:00' is no time of ISO 8601",
        ),
        ("a.csv", "v\n1500-01-01 00:00:00.1234567", "timestamp[ns]", "is no time that nanoseconds hold"),
        ("a.csv", "v\nsoon\n", "timestamp[us]", "'soon' is no time of ISO 8601"),
        ("a.jsonl", '{"v": 1.5}', "int64", "column 'v' is int64, and a value is double"),
        ("a.jsonl", '{"v": 1.505}', "decimal(10, 2)", r"column 'v' is decimal\(10, 2\), and '1.505' is none"),
        ("a.jsonl", '{"v": "1"}', "int64", "column 'v' is int64, and a value is string"),
        ("a.jsonl", '{"v": 1}', "string", "column 'v' is string, and a value is int64"),
        ("a.jsonl", '{"v": true}', "int64", "column 'v' is int64, and a value is bool"),
        ("a.jsonl", '{"v": 300}', "int8", "column 'v' is int8, and 300 is none"),
        ("a.csv", "v\n1e400\n", "double", "column 'v' is double, and a value is beyond that"),
        ("a.jsonl", '{"v": 1e99}', "float", "column 'v' is float, and a value is beyond that"),
        ("a.jsonl", '{"v": [1.505]}', "list<decimal(10, 2)>", r"column 'v' is decimal\(10, 2\)"),
        ("a.jsonl", '{"v": ["0x1F"]}', "list<int64>", "column 'v' is int64, and a value is string"),
        ("a.jsonl", '{"v": "NA"}', "date32", "column 'v' is date32"),
        ("a.jsonl", '{"v": ""}', "timestamp[us]", "'' is no time of ISO 8601"),
        (
            "a.csv",
            "v\n2025-03-01T00:00:00.1234567\n",
            "timestamp[us]",
            "column 'v' is timestamp.us., and '2025-03-01T00:00:00.1234567' is none",
        ),
    ],
)
def test_a_value_that_is_not_of_its_declared_type_is_refused(
    written: Written, name: str, content: str, kind: str, message: str
) -> None:
    source = FileSource(paths=[written(name, content)], rows=1, columns={"v": kind})
    with pytest.raises(TableError, match=message):
        source.advance(IN, 1, 0)


@pytest.mark.parametrize(
    ("name", "content", "kind", "expected"),
    [
        ("a.csv", "v\n007\n+5\n-01\n", "int64", [7, 5, -1]),
        ("a.csv", "v\n+.5\ninf\n01.5\n", "double", [0.5, float("inf"), 1.5]),
        ("a.csv", "v\n9007199254740993\n", "decimal(20, 0)", [Decimal(9007199254740993)]),
        ("a.csv", "v\n x \nNA\n", "string", [" x ", "NA"]),
        ("a.csv", "v\n x \nNA\n", "binary", [b" x ", b"NA"]),
        ("a.csv", "v\n2025-03-01T00:00:00.123456789Z\n", "timestamp[ns, UTC]", None),
        ("a.jsonl", '{"v": 18446744073709551616}\n{"v": 0.1000000000000000055}', "double", [2.0**64, 0.1]),
        ("a.jsonl", '{"v": 18446744073709551616}', "decimal(38, 0)", [Decimal(2**64)]),
        ("a.jsonl", '{"v": [1, null]}\n{"v": null}\n{"v": []}', "list<double>", [[1.0, None], None, []]),
        (
            "a.jsonl",
            '{"v": ["0.10", 0.2, 1]}',
            "list<decimal(5, 2)>",
            [[Decimal("0.10"), Decimal("0.20"), Decimal(1)]],
        ),
    ],
)
def test_a_declared_type_takes_what_can_be_written_as_it(
    written: Written, name: str, content: str, kind: str, expected: list[Any] | None
) -> None:
    source = FileSource(paths=[written(name, content)], rows=9, columns={"v": kind})
    total = source.advance(IN, 1, 0)
    found = source.read(IN, 1, Range(0, total or 0))["v"]
    if expected is None:
        assert found.cast(pa.int64()).to_pylist() == [1740787200_123456789]
    else:
        assert found.to_pylist() == expected


def test_a_column_that_nobody_reads_need_not_be_read(written: Written) -> None:
    path = written("a.jsonl", '{"id": 1, "odd": 12345678901234567.12, "at": 5}\n')
    source = FileSource(paths=[path], rows=1, columns=["id"], time="at")
    assert source.read(IN, 1, Range(0, 1)).to_pylist() == [{"id": 1}]
    assert source.found_types() == {"id": "int64"}


@pytest.mark.parametrize(
    ("values", "declared", "message"),
    [
        (pa.array(["0x1F"]), "int64", "column 'v' is int64, and '0x1F' is none"),
        (pa.array([1.505]), "decimal(10, 2)", r"column 'v' is decimal\(10, 2\), and double in the file"),
        (pa.array([True]), "int64", "column 'v' is int64, and bool in the file"),
        (pa.array([1], pa.timestamp("ms")), "int64", "column 'v' is int64, and timestamp.ms. in the file"),
        (pa.array([2**40]), "int32", "column 'v' is int32, and 1099511627776 is none"),
    ],
)
def test_columns_of_parquet_are_cast_only_where_no_value_changes(
    tmp_path: Path, values: pa.Array, declared: str, message: str
) -> None:
    pq.write_table(pa.table({"v": values}), tmp_path / "a.parquet")
    load_files.cache_clear()
    source = FileSource(paths=[str(tmp_path / "a.parquet")], rows=1, columns={"v": declared})
    with pytest.raises(TableError, match=message):
        source.found_types()


def test_a_time_that_is_not_declared_is_refused() -> None:
    with pytest.raises(DataPlaneError, match="'t'"):
        FileSource(paths=["a.csv"], rows=1, columns={"v": "int64"}, time="t")


def test_a_declared_column_that_no_file_has_is_named_and_one_that_some_lack_is_null(written: Written) -> None:
    paths = [written("a.csv", "v\n1\n"), written("b.csv", "v,w\n2,x\n"), written("c.csv", "")]
    known = FileSource(paths=paths, rows=9, columns={"w": "string", "v": "int64"})
    assert known.output_columns() == ("w", "v")
    assert known.read(IN, 1, Range(0, 2)).to_pylist() == [{"w": None, "v": 1}, {"w": "x", "v": 2}]
    with pytest.raises(SpecError, match="'absent'"):
        FileSource(paths=paths, rows=9, columns={"absent": "int64"}).output_columns()
    with pytest.raises(SpecError, match="there is no type 'number'") as caught:
        FileSource(paths=paths, rows=9, columns={"v": "number"})
    assert caught.value.field == "columns.v"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_files_without_a_byte_have_the_declared_columns(written: Written, name: str) -> None:
    columns = {"v": "int64", "at": "timestamp[us]"}
    source = FileSource(paths=[written(name, "")], rows=9, columns=columns, time="at")
    assert (source.output_columns(), source.found_types(), source.advance(IN, 1, 0)) == (
        ("v", "at"),
        {},
        None,
    )
    replay = EventTimeReplay(data=written(name, ""), step="1s", columns=columns, time="at")
    assert (replay.output_columns(), replay.batches()) == (("v", "at"), 0)


@pytest.mark.parametrize(
    ("kind", "other", "one"),
    [
        (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64())),
        (pa.struct([("a", pa.list_(pa.string()))]), pa.struct([("a", pa.large_list(pa.large_string()))]),
            pa.struct([("a", pa.list_(pa.string()))])),
        (pa.string(), pa.string_view(), pa.string()),
        (pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2)),
        (pa.large_binary(), pa.binary_view(), pa.binary()),
        (pa.timestamp("us", "+05:30"), pa.timestamp("us", "-02:00"), pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
def test_ways_to_lay_out_values_in_parquet_are_one_type(
    tmp_path: Path, kind: pa.DataType, other: pa.DataType, one: pa.DataType
) -> None:
    value = {"list": [1], "struct": {"a": ["x"]}, "timestamp[us, tz=UTC]": 0, "decimal128(5, 2)": 1}.get(
        str(one).partition("<")[0], "x"
    )
    for name, each in (("a", kind), ("b", other)):
        pq.write_table(pa.table({"v": pa.array([value], one).cast(each)}), tmp_path / f"{name}.parquet")
    load_files.cache_clear()
    found, values = column(str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet"))
    assert (found, len(values), values[0]) == (one, 2, values[1])


@pytest.mark.parametrize("folder", ["run[1]", "alone [2025]", "why?", "a*b", "[!x]", "plain"])
def test_what_exists_is_no_pattern_whatever_it_is_called(
    written: Written, tmp_path: Path, folder: str
) -> None:
    mine = written(f"{folder}/rows.csv", "v\nmine\n")
    for other in ("run1", "alone 2", "whyx", "axb", "y"):
        written(f"{other}/rows.csv", "v\nother\n")
    odd = written(f"{folder}/rows[2].csv", "v\nodd\n")
    for path, expected in ((mine, ["mine"]), (odd, ["odd"]), (f"{tmp_path}/{folder}/rows[[]2].csv", ["odd"])):
        assert FileSource(paths=[path], rows=9).read(IN, 1, Range(0, 1))["v"].to_pylist() == expected
    both = FileSource(paths=[f"{tmp_path}/{folder}/rows*.csv"], rows=9)
    assert both.read(IN, 1, Range(0, 2))["v"].to_pylist() == ["mine", "odd"]


@pytest.mark.parametrize("rows", [3, 20_000])
@pytest.mark.parametrize("names", [["note"], ["id", "note"]])
def test_quoted_values_may_have_line_breaks(tmp_path: Path, rows: int, names: list[str]) -> None:
    notes = [f'first {i}\nsecond, "quoted"\r\nthird' + "x" * (i % 13) for i in range(rows)]
    with (tmp_path / "notes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([[i, note][-len(names) :] for i, note in enumerate(notes)])
    load_files.cache_clear()
    assert column(str(tmp_path / "notes.csv"), name="note") == (pa.string(), notes)


def test_a_line_of_json_may_be_long_and_files_may_be_empty(written: Written) -> None:
    long = "x" * 3_000_000
    paths = [
        written("a.jsonl", ""), written("b.jsonl", f'{{"v": "{long}"}}\n\n'), written("c.jsonl", "\n"),
        written("d.csv", ""), written("e.csv", "v\n"), written("f.csv", "v\nlast"),
    ]  # fmt: skip
    assert column(*paths) == (pa.string(), [long, "last"])
    assert load_files((paths[0], paths[3])).num_rows == 0


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_mark_of_byte_order_and_ends_of_lines_are_no_part_of_a_value(written: Written, name: str) -> None:
    text = "v,w\r\n1,x\r\n" if name == "a.csv" else '{"v": 1, "w": "x"}\r\n'
    assert load_files((written(name, "\ufeff" + text),)).to_pylist() == [{"v": 1, "w": "x"}]


numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.from_regex(r"0[0-9]{1,5}", fullmatch=True),
)


@examples(60)
@given(values=st.lists(numbers, min_size=1, max_size=5))
def test_numbers_in_text_are_kept_to_the_last_digit(
    tmp_path_factory: pytest.TempPathFactory, values: Sequence[str]
) -> None:
    path = tmp_path_factory.mktemp("numbers") / "a.csv"
    path.write_text("v,w\n" + "".join(f"{value},x\n" for value in values))
    kind, found = column(str(path))
    if kind == pa.string():
        assert found == list(values)
    else:
        assert [float(value) for value in found] == [float(value) for value in values]
        assert all(is_exact(value) for value in values) or kind != pa.float64()
        assert kind == pa.float64() or [str(value) for value in found] == list(values)


@pytest.mark.parametrize("year", [1500, 1900, 2025, 9999])
def test_times_that_spark_writes_are_read_however_far_they_are(tmp_path: Path, year: int) -> None:
    at = datetime(year, 12, 31, 1, 2, 3, 456789)
    path = tmp_path / "spark.parquet"
    pq.write_table(
        pa.table({"v": pa.array([at], pa.timestamp("us"))}), path, use_deprecated_int96_timestamps=True
    )
    assert column(str(path)) == (pa.timestamp("us"), [at])


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("v\n1\n\n3\n", [1, None, 3]),
        ("v\n1\n\n", [1, None]),
        ("v\n1\n", [1]),
        ("v\n", []),
        ("v", []),
        ("\ufeffv", []),
        ("\nv\n1\n", [1]),
    ],
)
def test_an_empty_line_of_one_column_is_a_null(written: Written, content: str, rows: list[Any]) -> None:
    found = load_files((written("a.csv", content),), (("v", pa.int64()),))
    assert found["v"].to_pylist() == rows


def test_lines_without_values_are_no_rows_of_several_columns(written: Written) -> None:
    assert load_files((written("a.csv", "v,w\n1,2\n\n3,4\n"), written("b.csv", "v,w")))["v"].to_pylist() == [
        1,
        3,
    ]


def test_a_pattern_of_two_stars_reaches_into_folders(written: Written) -> None:
    paths = [written(name, "v\n1\n") for name in ("r/a.csv", "r/e/b.csv", "r/e/f/c.csv")]
    found = FileSource(paths=[str(Path(paths[0]).parent / "**" / "*.csv")], rows=10)
    assert found.read(IN, 1, Range(0, 3)).num_rows == 3


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**60, 1704067200123456000])
def test_a_time_that_is_too_far_away_is_refused(value: int) -> None:
    for kind in (pa.int64(), pa.timestamp("us")):
        with pytest.raises(DataPlaneError, match=r"'v' holds .* are these nanoseconds"):
            times(pa.table({"v": pa.array([0, value], pa.int64()).cast(kind)}), "v")
