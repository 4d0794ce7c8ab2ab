"""Output buffers: nothing is lost or reordered, and memory stays within its budget (invariant R1)."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.buffers import IN_FLIGHT, Budget, EdgeBuffer
from spark_jobs.errors import LostOutputError


def make(folder: Path, memory: int = 10_000, disk: int = 10**9) -> EdgeBuffer:
    return EdgeBuffer("a.0", "b.0", Budget(memory, disk, folder))


def test_sends_in_order_and_keeps_until_trimmed(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    for batch in (1, 2, 3):
        buffer.put(batch, batch * 10, bytes([batch]))
    assert [(m.batch, m.watermark, body) for m, body in buffer.pending(0, 2)] == [
        (1, 10, b"\1"),
        (2, 20, b"\2"),
    ]
    assert [m.batch for m, _ in buffer.pending(0, 9)] == [3]
    buffer.cursor = 1
    assert [m.batch for m, _ in buffer.pending(0, 9)] == [1, 2, 3]
    buffer.trim(2)
    assert sorted(buffer.entries) == [3]
    assert buffer.budget.memory == 1


def test_a_gap_is_not_jumped(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    buffer.put(2, None, b"x")
    assert list(buffer.pending(0, 5)) == []


def test_spills_oldest_and_reads_it_back(tmp_path: Path) -> None:
    buffer = make(tmp_path, memory=250)
    for batch in range(1, 11):
        buffer.put(batch, None, bytes([batch]) * 100)
    assert buffer.budget.memory <= 250
    assert buffer.budget.disk == 800
    assert len(list(tmp_path.iterdir())) == 8
    assert [body for _, body in buffer.pending(0, 10)] == [bytes([b]) * 100 for b in range(1, 11)]
    buffer.clear()
    assert list(tmp_path.iterdir()) == []
    assert (buffer.budget.memory, buffer.budget.disk) == (0, 0)


def spilled(folder: Path) -> tuple[EdgeBuffer, Path]:
    """Ten batches, of which eight are in files; and the file of the third."""
    buffer = make(folder, memory=250)
    for batch in range(1, 11):
        buffer.put(batch, None, bytes([batch]) * 100)
    path = buffer.entries[3].path
    assert path is not None
    return buffer, path


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "is damaged"),
        (lambda path: path.write_bytes(bytes([9]) * 100), "is damaged"),
        (lambda path: path.write_bytes(b""), "is damaged"),
    ],
    ids=["gone", "cut", "changed", "empty"],
)
def test_a_spilled_batch_that_is_lost_is_told_and_not_passed_over(
    tmp_path: Path, damage: Callable[[Path], object], why: str
) -> None:
    buffer, path = spilled(tmp_path)
    damage(path)
    sent = []
    for _ in range(2):
        with pytest.raises(LostOutputError, match=rf"output of a\.0 for b\.0, batch 3: .*spill {why}"):
            sent += [message.batch for message, _ in buffer.pending(0, 10)]
    assert buffer.cursor == 3 and sent == []
    buffer.clear()
    assert (buffer.budget.memory, buffer.budget.disk) == (0, 0)


def test_a_disk_that_does_not_answer_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, _ = spilled(tmp_path)

    def refuses(_: Path) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuses)
        with pytest.raises(OSError, match="input/output"):
            list(buffer.pending(0, 10))
    assert [body for _, body in buffer.pending(0, 10)] == [bytes([b]) * 100 for b in range(1, 11)]


def test_both_limits_reached_names_the_settings(tmp_path: Path) -> None:
    buffer = make(tmp_path, memory=100, disk=100)
    buffer.put(1, None, b"x" * 90)
    with pytest.raises(BufferError, match=r"recovery\.bufferDisk"):
        for batch in range(2, 9):
            buffer.put(batch, None, b"x" * 90)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["put", "trim", "rewind", "send"]), st.integers(0, 30)), max_size=60)
)
def test_accounts_exactly(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    buffer = make(tmp_path_factory.mktemp("spill"), memory=64)
    produced: dict[int, bytes] = {}
    trimmed = 0
    for action, number in steps:
        if action == "put":
            batch = max([trimmed, *produced]) + 1
            produced[batch] = bytes([batch % 256]) * number
            buffer.put(batch, None, produced[batch])
        elif action == "trim":
            trimmed = max(trimmed, min(number, max(produced, default=0)))
            buffer.trim(trimmed)
        elif action == "rewind":
            buffer.cursor = max(trimmed + 1, min(number, buffer.cursor))
        else:
            for message, body in buffer.pending(0, number):
                assert body == produced[message.batch]
    kept = {b: d for b, d in produced.items() if b > trimmed}
    assert set(buffer.entries) == set(kept)
    assert buffer.budget.memory + buffer.budget.disk == sum(map(len, kept.values()))
    assert buffer.budget.memory <= 64
    buffer.cursor = trimmed + 1
    assert [b for _, b in buffer.pending(0, 10**6)] == [kept[b] for b in sorted(kept)]


def test_a_target_that_does_not_confirm_is_not_sent_more_than_is_allowed_in_flight(tmp_path: Path) -> None:
    size = IN_FLIGHT // 4
    buffer = EdgeBuffer("a.0", "b.0", Budget(10 * IN_FLIGHT, 0, tmp_path))
    for batch in range(1, 11):
        buffer.put(batch, None, bytes(size))
    assert [m.batch for m, _ in buffer.pending(0, 100)] == [1, 2, 3, 4]
    assert [m.batch for m, _ in buffer.pending(0, 100)] == []
    assert [m.batch for m, _ in buffer.pending(3, 100)] == [5, 6, 7]
    assert [m.batch for m, _ in buffer.pending(10, 100)] == [8, 9, 10]
