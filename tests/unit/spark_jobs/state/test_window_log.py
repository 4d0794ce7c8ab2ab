"""The log of a partition that is stored slot by slot: whatever is cut off or damaged, what is read is whole batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.errors import NewerVersionError
from reprise.spark_jobs.state import window_log
from reprise.spark_jobs.state.window_log import (
    End,
    Record,
    RecordKind,
    Segment,
    begin,
    columns_of,
    encode_record,
    encode_segment,
)

RECORDS = [
    Record(RecordKind.BEGIN, 0, begin(["key:k"])),
    Record(RecordKind.OPEN, 1, b"abc"),
    Record(RecordKind.END, 1, End(1).encode()),
    Record(RecordKind.CLOSED, 2, b""),
    Record(RecordKind.END, 2, End(0, 17, {"closed": 5}).encode()),
    Record(RecordKind.CHECK, 4, b"x" * 300),
    Record(RecordKind.END, 4, End(2).encode()),
]


def test_a_segment_is_read_from_its_end() -> None:
    segment = Segment.read(encode_segment(RECORDS))
    assert segment.whole
    assert segment.last == 4
    assert list(segment.backwards(4)) == RECORDS[::-1]
    assert list(segment.backwards(3)) == RECORDS[4::-1]
    assert list(segment.backwards(1)) == RECORDS[2::-1]
    assert list(segment.backwards(0)) == []


def test_an_index_that_is_missing_is_made_again() -> None:
    bare = b"".join(map(encode_record, RECORDS))
    cut, whole = Segment.read(bare), Segment.read(encode_segment(RECORDS))
    assert not cut.whole
    assert cut.ends == whole.ends
    assert list(cut.backwards(4)) == RECORDS[::-1]


def test_a_tail_that_is_torn_at_any_byte_leaves_whole_batches() -> None:
    data = encode_segment(RECORDS)
    offsets = dict(Segment.read(data).ends)
    for size in range(len(data)):
        torn = Segment.read(data[:size])
        assert not torn.whole
        assert torn.ends == {batch: at for batch, at in offsets.items() if at <= size}
        found = list(torn.backwards(9))
        assert found == RECORDS[: len(found)][::-1]
        assert not found or found[0].kind is RecordKind.END


def test_a_damaged_byte_is_noticed_wherever_it_is() -> None:
    data = encode_segment(RECORDS)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x5A
        segment = Segment.read(bytes(damaged))
        try:
            found = list(segment.backwards(9))
        except ValueError:
            continue
        assert found == RECORDS[: len(found)][::-1], "what is read is what was written"
        assert not segment.whole or found == RECORDS[::-1]


@pytest.mark.parametrize("data", [b"", b"\0", b"\0" * 64, b"no log at all, and long enough to be one"])
def test_what_is_no_segment_has_no_batches(data: bytes) -> None:
    assert Segment.read(data).last is None
    assert list(Segment.read(data).backwards(9)) == []


def test_what_end_says_comes_back() -> None:
    said = End(3, 1_700_000, {"closed": None, "late": 4})
    assert End.decode(said.encode()) == said


def test_a_table_without_rows_keeps_its_columns() -> None:
    table = pa.table({"a": pa.array([], pa.string())})
    assert from_stream(to_stream(table)).equals(table)


def test_a_record_that_is_too_large_for_its_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_log, "MOST", 299)
    with pytest.raises(ValueError, match=r"a record of 300 bytes \(CHECK, batch 4\)"):
        encode_segment(RECORDS)


def test_a_segment_says_its_version() -> None:
    assert columns_of(begin(["key:k", "pane"])) == ("key:k", "pane")
    with pytest.raises(NewerVersionError, match=r"version 2; .* up to 1"):
        columns_of(b'{"version": 2, "fields": []}')
