"""Bundles, commands and reports: what goes in comes out, and what is not one is refused with a reason."""

import contextlib
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.errors import WireError
from reprise.spark_jobs.node.command import Ack, Report, Usage
from reprise.spark_jobs.node.wire import Message, decode_table, encode_table, pack, unpack
from tests.support.examples import examples

tables = st.one_of(
    st.none(),
    st.lists(st.tuples(st.text(max_size=5), st.integers(-(2**60), 2**60)), min_size=1, max_size=20).map(
        lambda rows: pa.table({"tag": [r[0] for r in rows], "n": [r[1] for r in rows]})
    ),
)


@given(
    st.lists(
        st.tuples(tables, st.one_of(st.none(), st.integers(0, 2**60)), st.integers(1, 10**6)), max_size=6
    )
)
def test_a_bundle_keeps_its_messages(items: list[tuple[pa.Table | None, int | None, int]]) -> None:
    sent = [Message(f"a{i % 2}.{i % 3}", f"b.{i}", b, w, t) for i, (t, w, b) in enumerate(items)]
    got = sorted(
        unpack(pack((m, encode_table(m.table)) for m in sent)), key=lambda m: int(m.target.rpartition(".")[2])
    )
    assert [(m.source, m.target, m.batch, m.watermark) for m in got] == [
        (m.source, m.target, m.batch, m.watermark) for m in sent
    ]
    for before, after in zip(sent, got, strict=True):
        assert (before.table is None) == (after.table is None)
        if before.table is not None:
            assert after.table.equals(before.table)


def test_no_rows_need_no_bytes() -> None:
    assert encode_table(pa.table({"x": pa.array([], pa.int64())})) == b""
    assert decode_table(b"") is None


@pytest.mark.parametrize("garbage", [b"", b"\0\0", b"\0\0\0\2[]x"[:5], b"\0\0\0\4nope", b"\xff" * 40])
def test_garbage_is_not_a_bundle(garbage: bytes) -> None:
    with pytest.raises(WireError, match="not a message bundle"):
        list(unpack(garbage))


def test_a_report_survives_the_wire() -> None:
    report = Report(
        slot=0, host="h", positions={"a.0": 5}, installed={"a.0": "i"}, failed={"b.0": Failure(FailureKind.POISON, "x")},
        acks=(Ack("a.0", "1.1.1", 5, None),), usage={"a.0": Usage(0.5, 10)}, outputs=(("a.0", 5, 1.5),), problems=("p",),
    )  # fmt: skip
    assert Report.decode(report.encode()) == report
    with pytest.raises(WireError, match="report"):
        Report.decode(b"[]")


def test_what_messages_have_in_common_is_said_once() -> None:
    """A barrier of one partition for all of an operator: two bytes or three a target, and no operator's name twice."""
    few, many = (
        pack((Message("parse.3", f"count.{t}", 1234, 1_700_000_000_000_000, None), b"") for t in range(n))
        for n in (10, 60)
    )
    assert len(many) - len(few) <= 50 * len(b"59,")
    assert many.count(b"count") == 1
    assert {m.target for m in unpack(many)} == {f"count.{t}" for t in range(60)}


def bundle() -> bytes:
    rows = Message("a.0", "b.0", 3, 5, None), encode_table(pa.table({"n": [1, 2, 3]}))
    barrier = Message("a.1", "b.0", 3, None, None), b""
    return pack([rows, barrier, rows])


def test_a_bundle_that_was_cut_off_is_refused_at_every_length_and_loses_no_rows_in_silence() -> None:
    whole = bundle()
    assert [None if m.table is None else m.table.num_rows for m in unpack(whole)] == [3, 3, None]
    for length in range(len(whole)):
        with pytest.raises(WireError, match="not a message bundle"):
            list(unpack(whole[:length]))
    with pytest.raises(WireError, match="bytes where"):
        list(unpack(whole + b"\0"))


@pytest.mark.parametrize(
    "header",
    [
        b"{}",
        b"[1]",
        b"[[1]]",
        b'[["a","b",[[0,1,null,[[0,-4]]]]]]',
        b'[["a","b",[[0,1,null,[[0,"4"]]]]]]',
        b'[["a","b",[[0,1,null,["4"]]]]]',
        b'[["a","b",[[0,1,null,[[0,1,2]]]]]]',
        b'[["a","b",[[0,1,null]]]]',
        b'[["a","b"]]',
        b"null",
        b"\xff",
    ],
)
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(WireError):
        list(unpack(len(header).to_bytes(4, "big") + zlib.crc32(header).to_bytes(4, "big") + header))


def test_a_damaged_header_is_no_barrier_for_somebody_else() -> None:
    sent = pack((Message("a.0", f"b.{t}", 3, None, None), b"") for t in range(100, 120))
    for at in range(len(sent)):
        damaged = bytearray(sent)
        damaged[at] ^= 2
        with pytest.raises(WireError, match="not a message bundle"):
            list(unpack(bytes(damaged)))


@examples(150)
@given(st.data())
def test_a_bundle_with_a_damaged_byte_is_refused_or_has_as_many_messages(data: st.DataObject) -> None:
    damaged = bytearray(bundle())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        assert len(list(unpack(bytes(damaged)))) == 3
