"""Output buffers: nothing is lost or reordered, and memory stays within its budget (invariant R1)."""

import errno
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import LostOutputError
from reprise.spark_jobs.node.buffers import IN_FLIGHT, Budget, EdgeBuffer
from reprise.spark_jobs.platform import write_new
from tests.support.examples import examples


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


def test_the_cursor_never_stands_at_a_batch_that_was_dropped(tmp_path: Path) -> None:
    """A partition that makes again what its target has applied: it is trimmed unsent, and what follows is sent."""
    buffer = make(tmp_path)
    for batch in (1, 2, 3, 4):
        buffer.put(batch, None, b"x")
    buffer.trim(2)
    assert [m.batch for m, _ in buffer.pending(2, 9)] == [3, 4]
    buffer.trim(3)
    assert buffer.cursor == 5
    buffer.trim(2)
    assert buffer.cursor == 5


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


def test_a_spilled_batch_is_read_again_before_it_is_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer, _ = spilled(tmp_path)
    real, answers = Path.read_bytes, [FileNotFoundError(), None]

    def once(path: Path) -> bytes:
        if (answer := answers.pop(0)) is not None:
            raise answer
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", once)
    assert buffer.body(3) == bytes([3]) * 100


def test_both_limits_reached_names_the_settings(tmp_path: Path) -> None:
    buffer = make(tmp_path, memory=100, disk=100)
    buffer.put(1, None, b"x" * 90)
    with pytest.raises(BufferError, match=r"recovery\.bufferDisk"):
        for batch in range(2, 9):
            buffer.put(batch, None, b"x" * 90)


@examples(60)
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


def test_a_batch_is_kept_as_it_was_first_produced_and_counted_once(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    buffer.put(1, 10, b"first")
    buffer.put(1, 20, b"another")
    buffer.put(2, 30, b"")
    assert [(m.source, m.target, m.batch, m.watermark, body) for m, body in buffer.pending(0, 9)] == [
        ("a.0", "b.0", 1, 10, b"first"),
        ("a.0", "b.0", 2, 30, b""),
    ]
    assert buffer.budget.memory == 5


def test_what_has_no_room_is_refused_whole_and_what_must_be_kept_is_kept(tmp_path: Path) -> None:
    buffer = make(tmp_path, memory=100, disk=0)
    buffer.put(1, None, b"x" * 60)
    with pytest.raises(BufferError, match=r"120 bytes in memory .* 0 bytes on disk"):
        buffer.put(2, None, b"y" * 60)
    assert (sorted(buffer.entries), buffer.budget.memory) == ([1], 60)
    buffer.put(2, None, b"y" * 60, force=True)
    assert [body for _, body in buffer.pending(0, 9)] == [b"x" * 60, b"y" * 60]
    assert buffer.budget.memory == 120
    buffer.trim(1)
    assert (sorted(buffer.entries), buffer.budget.memory) == ([2], 60)


def test_only_as_much_is_spilled_as_there_is_too_much_and_the_last_byte_of_both_limits_is_used(
    tmp_path: Path,
) -> None:
    buffer = make(tmp_path, memory=100, disk=50)
    for batch in (1, 2):
        buffer.put(batch, None, b"x" * 50)
    assert (buffer.budget.disk, buffer.budget.spilled) == (0, 0)
    buffer.put(3, None, b"x" * 50)
    assert (buffer.budget.memory, buffer.budget.disk, buffer.budget.spilled) == (100, 50, 50)
    assert [b for b, entry in buffer.entries.items() if entry.path] == [1]
    buffer.trim(1)
    assert (buffer.budget.memory, buffer.budget.disk, buffer.budget.spilled) == (100, 0, 50)
    assert list(tmp_path.iterdir()) == []
    buffer.put(4, None, b"x" * 50)
    assert (buffer.budget.disk, buffer.budget.spilled) == (50, 100)
    buffer.forget(3)
    assert (sorted(buffer.entries), buffer.budget.memory) == ([2, 4], 50)


@pytest.mark.parametrize("begun", [True, False])
def test_a_disk_that_is_full_leaves_no_piece_of_a_file_and_the_batch_waits(
    tmp_path: Path, begun: bool
) -> None:
    buffer = make(tmp_path, memory=100)
    buffer.put(1, None, b"x" * 60)

    def half(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
        if begun:
            path.touch()
        raise OSError(errno.ENOSPC, "no space left")

    buffer.budget.write = half
    with pytest.raises(OSError, match="no space"):
        buffer.put(2, None, b"y" * 60)
    buffer.budget.write = write_new
    assert list(tmp_path.iterdir()) == []
    assert (sorted(buffer.entries), buffer.budget.memory, buffer.budget.disk) == ([1], 60, 0)
    buffer.put(2, None, b"y" * 60)
    assert [body for _, body in buffer.pending(0, 9)] == [b"x" * 60, b"y" * 60]


def test_what_was_given_up_cannot_be_sent_again_and_that_is_said(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    for batch in (3, 4, 5):
        buffer.put(batch, None, bytes([batch]))
    assert buffer.rewind(1), "nothing was given up"
    buffer.trim(3)
    assert sorted(buffer.entries) == [4, 5]
    buffer.trim(4)
    assert sorted(buffer.entries) == [5]
    assert not buffer.rewind(4)
    assert buffer.rewind(5)
    assert [m.batch for m, _ in buffer.pending(4, 9)] == [5]
    buffer.rewind(5)
    assert [m.batch for m, _ in buffer.pending(4, 9)] == [5], "it is sent from there on again"


def test_what_was_forgotten_is_not_looked_for_when_room_is_made(tmp_path: Path) -> None:
    buffer = make(tmp_path, memory=100)
    for batch in (1, 2):
        buffer.put(batch, None, b"x" * 50)
    buffer.trim(1)
    for batch in (3, 4):
        buffer.put(batch, None, b"x" * 50)
    assert [b for b, entry in buffer.entries.items() if entry.path] == [2]


def test_rows_of_an_earlier_batch_are_told_from_batches_without_rows(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    buffer.put(1, None, b"")
    buffer.put(2, None, b"x")
    assert [buffer.holds_before(batch) for batch in (1, 2, 3)] == [False, False, True]


def test_bytes_in_flight_count_from_the_first_that_is_not_confirmed(tmp_path: Path) -> None:
    """The last that may go makes the limit full; the next one waits for the first to be confirmed."""
    buffer = EdgeBuffer("a.0", "b.0", Budget(10 * IN_FLIGHT, 0, tmp_path))
    for batch, size in ((1, IN_FLIGHT - 1), (2, 1), (3, 1)):
        buffer.put(batch, None, bytes(size))
    assert [m.batch for m, _ in buffer.pending(0, 9)] == [1, 2]
    assert [m.batch for m, _ in buffer.pending(0, 9)] == []
    assert [m.batch for m, _ in buffer.pending(1, 9)] == [3]
