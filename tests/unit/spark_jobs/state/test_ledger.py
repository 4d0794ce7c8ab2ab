"""The ledger of source ranges: what a batch is, is said once, and said again to whoever asks later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.errors import (
    DamagedError,
    NotYetError,
    SourceError,
    SpecError,
    StoreError,
    SupersededError,
)
from reprise.spark_jobs.state.epochs import Fence, claim_epoch
from reprise.spark_jobs.state.ledger import AHEAD, Block, Ledger, has_ended, last_released
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import expand, load_text

TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: small}
spec:
  batch: {interval: 100ms}
  sources: [{name: in, class: "tests.support.live_engine:Live", parallelism: 2}]
  operators:
    - {name: out, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: in}], output: {}}
"""


class Scripted(Source):
    """Ten rows a batch; partition 1 ends after batch `ends[1]`, and so on.  `trouble` is raised where it is set.  `live`
    is as the last ledger was asked for."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends = ends
        self.trouble: Exception | None = None
        self.looked = 0
        self.told: list[tuple[str, Range]] = []
        self.said: list[str] = []

    def look(self) -> None:
        self.looked += 1
        if self.trouble is not None:
            raise self.trouble

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return None if batch > self.ends.get(place.index, 10**9) else start + 10

    def stored(self, place: Place, upto: Range) -> None:
        self.told.append((f"{place.operator}.{place.index}", upto))

    def notices(self) -> list[str]:
        said, self.said = self.said, []
        return said

    def read(self, place: Place, batch: int, span: Range) -> object:  # type: ignore[override]
        raise AssertionError("the driver reads no rows")

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        raise AssertionError("nor asks for watermarks")


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, int]]:
    """When each source partition ends; all ledgers of the test have a `Scripted` source of their own."""
    ends: dict[int, int] = {}
    monkeypatch.setattr("reprise.spark_jobs.state.ledger.make_source", lambda _: Scripted(ends))
    yield ends


def ledger(folder: Path, live: bool = False, fence: Fence | None = None) -> tuple[Ledger, Scripted]:
    resource = load_text(TOPOLOGY)
    Scripted.live = live
    made = Ledger(str(folder), resource, expand(resource), fence)
    source = made._sources["in"]
    assert isinstance(source, Scripted)
    return made, source


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "ranges").iterdir())


def test_a_block_comes_back_as_it_was_and_one_of_an_earlier_version_is_of_no_driver() -> None:
    spans = {1: Range(0, 10), 2: Range(10, 30, {"t/0": (4, 20), "t/1": (6, 10)})}
    block = Block(2, 1, {"in.0": spans}, 7)
    assert Block.decode(block.encode()) == block
    assert Block.decode(b'{"last": 3, "ended_at": null, "ranges": {}}') == Block(3, None, {}, 0)


@pytest.mark.usefixtures("sources")
def test_blocks_are_written_ahead_where_the_source_does_not_grow_and_as_due_where_it_does(
    tmp_path: Path,
) -> None:
    bounded, source = ledger(tmp_path / "bounded")
    assert (bounded.reach(0), source.looked) == (0, 0)
    assert bounded.reach(1) == 1
    assert (bounded.written, files(tmp_path / "bounded")) == (AHEAD, ["0000000001.json"])
    assert bounded.reach(AHEAD) == AHEAD
    assert bounded.reach(AHEAD + 1) == AHEAD + 1
    assert (source.looked, files(tmp_path / "bounded")[-1]) == (2, f"{AHEAD + 1:010d}.json")
    live, _ = ledger(tmp_path / "live", live=True)
    assert (live.reach(3), live.reach(5), live.written) == (3, 5, 5)
    assert files(tmp_path / "live") == ["0000000001.json", "0000000004.json"]
    assert live.spans("in.0", 1, 9) == {b: Range(10 * b - 10, 10 * b) for b in (2, 3, 4, 5)}
    assert sorted(live.spans("in.0", 1, 4)) == [2, 3, 4]


def test_a_partition_that_ends_before_the_others_keeps_its_end_until_all_have_ended(
    tmp_path: Path, sources: dict[int, int]
) -> None:
    sources.update({0: 5, 1: 2})
    for made, _ in (ledger(tmp_path), ledger(tmp_path)):  # the second reads what the first has written
        assert made.reach(9) == 5
        assert made.ended_at == 5
        assert [has_ended(made.ranges["in.1"][batch]) for batch in (1, 2, 3, 4, 5)] == [
            False,
            False,
            True,
            True,
            True,
        ]
        assert made.offsets(4) == {"in.0": 40, "in.1": 20}
        assert made.offsets(99) == {"in.0": 50, "in.1": 20}
        assert made.offsets(0) == {"in.0": 0, "in.1": 0}


def test_a_partition_that_has_ended_still_says_where_each_of_its_logs_ends(
    tmp_path: Path, sources: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby site goes on from there, and the checkpoint of a later batch is all that it has."""

    def plan(self: Scripted, place: Place, batch: int, before: Range) -> Range | None:
        end = self.advance(place, batch, before.end)
        return None if end is None else Range(before.end, end, {"t/0": (before.end, end)})

    monkeypatch.setattr(Scripted, "plan", plan)
    sources.update({0: 5, 1: 2})
    made, _ = ledger(tmp_path)
    made.reach(9)
    assert made.logs(5) == {"in.0": {"t/0": 50}, "in.1": {"t/0": 20}}


def test_offsets_of_logs_are_those_of_partitions_that_read_several(
    tmp_path: Path, sources: dict[int, int]
) -> None:
    made, _ = ledger(tmp_path)
    made.reach(2)
    made.ranges["in.1"][2] = Range(10, 30, {"t/0": (4, 20), "t/1": (6, 10)})
    assert made.logs(2) == {"in.1": {"t/0": 20, "t/1": 10}}
    assert made.logs(1) == {}


@pytest.mark.parametrize("error", [SourceError("brokers are away"), NotYetError("not yet")])
@pytest.mark.usefixtures("sources")
def test_a_source_that_cannot_say_keeps_the_stream_where_it_is(tmp_path: Path, error: Exception) -> None:
    made, source = ledger(tmp_path, live=True)
    made.reach(2)
    source.trouble = error
    assert (made.reach(5), made.written) == (2, 2)
    waits = [] if isinstance(error, NotYetError) else ["sources wait: brokers are away"]
    assert made.problems == waits
    source.trouble, source.said = None, ["3 rows were set aside"]
    assert made.reach(5) == 5
    assert made.problems == [*waits, "3 rows were set aside"]


@pytest.mark.usefixtures("sources")
def test_sources_hear_what_the_newest_checkpoint_covers_and_old_blocks_go_with_the_oldest(
    tmp_path: Path,
) -> None:
    made, source = ledger(tmp_path, live=True)
    for batch in range(1, 8):
        made.reach(batch)
    made.stored(6, 4)
    assert source.told == [("in.0", Range(50, 60)), ("in.1", Range(50, 60))]
    assert (made.trimmed, files(tmp_path)) == (
        3,
        ["0000000003.given-up", *(f"{k:010d}.json" for k in (4, 5, 6, 7))],
    )
    assert sorted(made.ranges["in.0"]) == [4, 5, 6, 7]
    for _ in range(2):
        made.stored(7, 5)
        assert files(tmp_path)[0] == "0000000004.given-up", "the mark before is not needed any more"
        assert (made.trimmed, len(files(tmp_path))) == (4, 4)


@pytest.mark.usefixtures("sources")
def test_a_block_that_is_needed_in_part_stays_and_so_do_all_of_a_source_that_does_not_grow(
    tmp_path: Path,
) -> None:
    made, _ = ledger(tmp_path / "live", live=True)
    for batch in (3, 6):
        made.reach(batch)
    made.stored(6, 3)
    assert (made.trimmed, files(tmp_path / "live")) == (0, ["0000000001.json", "0000000004.json"])
    bounded, _ = ledger(tmp_path / "bounded")
    bounded.reach(40)
    bounded.stored(40, 40)
    assert len(files(tmp_path / "bounded")) == 3


@pytest.mark.usefixtures("sources")
def test_a_source_that_never_ends_has_no_more_on_record_than_checkpoints_need(tmp_path: Path) -> None:
    """Its class does not say that rows arrive while the stream runs."""
    made, _ = ledger(tmp_path)
    for batch in range(100, 3001, 100):
        made.reach(batch)
        made.stored(batch, batch - 30)
    assert made.trimmed > 2900
    assert sum(len(ranges) for ranges in made.ranges.values()) <= 2 * (30 + 2 * AHEAD)
    assert len(files(tmp_path)) <= 6
    again, _ = ledger(tmp_path)
    assert (again.trimmed, again.written) == (made.trimmed, made.written)
    assert again.at(2999) == made.at(2999)


@pytest.mark.parametrize("late", [2, 3])
@pytest.mark.usefixtures("sources")
def test_a_block_that_was_written_late_under_a_name_that_was_given_up_counts_for_nothing(
    tmp_path: Path, late: int
) -> None:
    made, _ = ledger(tmp_path, live=True)
    for batch in range(1, 6):
        made.reach(batch)
    path = tmp_path / "ranges" / f"{late:010d}.json"
    block = path.read_bytes()
    made.stored(5, 4)
    path.write_bytes(block)
    again, _ = ledger(tmp_path, live=True)
    assert (again.trimmed, again.written) == (3, 5)
    assert sorted(again.ranges["in.0"]) == [4, 5]


@pytest.mark.usefixtures("sources")
def test_what_another_driver_has_said_of_a_batch_is_taken_over_and_a_later_one_ends_this(
    tmp_path: Path,
) -> None:
    here = str(tmp_path)
    old, _ = ledger(tmp_path, live=True, fence=claim_epoch(here, lambda least: least))
    old.reach(1)
    new, _ = ledger(tmp_path, live=True, fence=claim_epoch(here, lambda least: least))
    assert new.spans("in.0", 0, 1) == old.spans("in.0", 0, 1)
    new.reach(2)
    with pytest.raises(SupersededError, match="epoch 2 has begun"):
        old.reach(2)  # the block is there
    with pytest.raises(SupersededError, match="epoch 2 has begun"):
        old.reach(3)
    with pytest.raises(SupersededError):
        old.stored(1, 1)


def test_the_first_who_says_what_a_batch_is_has_said_it_for_all(
    tmp_path: Path, sources: dict[int, int]
) -> None:
    """The later driver has looked before the old one wrote, and its source says something else by now."""
    here = str(tmp_path)
    old, _ = ledger(tmp_path, live=True, fence=claim_epoch(here, lambda least: least))
    new, _ = ledger(tmp_path, live=True, fence=claim_epoch(here, lambda least: least))
    with pytest.raises(SupersededError):
        old.reach(2)
    sources.update({0: 0, 1: 0})  # it would say that there is nothing
    assert new.reach(2) == 2
    assert new.ended_at is None
    assert new.spans("in.1", 0, 2) == {1: Range(0, 10), 2: Range(10, 20)}


@pytest.mark.parametrize("text", ["", "{}", '{"began": null}', "[]"])
@pytest.mark.usefixtures("sources")
def test_a_damaged_name_of_the_stream_is_an_error_and_no_new_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "stream.json").write_text(text)
    with pytest.raises(DamagedError, match=r"stream\.json in .*: the stream's name is damaged"):
        ledger(tmp_path)


@pytest.mark.usefixtures("sources")
def test_a_block_that_is_listed_and_not_found_is_read_again_before_the_store_is_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger(tmp_path, live=True)[0].reach(2)
    real, missed = Files.read, [0]

    def misses(self: Files, relative: str) -> bytes | None:
        if relative.startswith("ranges/") and missed[0]:
            missed[0] -= 1
            return None
        return real(self, relative)

    monkeypatch.setattr(Files, "read", misses)
    missed[0] = 1
    assert ledger(tmp_path, live=True)[0].written == 2
    missed[0] = 2
    with pytest.raises(StoreError, match=r"cannot read ranges/0000000001\.json in .*: its name was there"):
        ledger(tmp_path, live=True)


@pytest.mark.parametrize("name", ["stream.json", "ranges/0000000001.json"])
@pytest.mark.usefixtures("sources")
def test_bytes_that_were_cut_on_their_way_are_read_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every store says so: its client takes an answer for whole whose length fits."""
    said = ledger(tmp_path, live=True)[0]
    said.reach(2)
    real, cut = Files.read, [1]

    def short(self: Files, relative: str) -> bytes | None:
        data = real(self, relative)
        if relative == name and cut[0] and data is not None:
            cut[0] -= 1
            return data[: len(data) // 2]
        return data

    monkeypatch.setattr(Files, "read", short)
    again = ledger(tmp_path, live=True)[0]
    assert (cut, again.stream, again.ranges) == ([0], said.stream, said.ranges)


@pytest.mark.usefixtures("sources")
def test_a_block_says_whose_it_is(tmp_path: Path) -> None:
    ledger(tmp_path / "none", live=True)[0].reach(1)
    claim = claim_epoch(str(tmp_path / "third"), lambda least: 3)
    ledger(tmp_path / "third", live=True, fence=claim)[0].reach(1)
    blocks = [(tmp_path / name / "ranges" / "0000000001.json").read_bytes() for name in ("none", "third")]
    assert [Block.decode(block).epoch for block in blocks] == [0, 3]


def test_a_partition_that_has_ended_stays_at_its_end_in_later_blocks(
    tmp_path: Path, sources: dict[int, int]
) -> None:
    sources.update({1: 1})
    made, _ = ledger(tmp_path, live=True)
    for batch in (1, 2, 3, 4):
        assert made.reach(batch) == batch
    assert made.offsets(4) == {"in.0": 40, "in.1": 10}


@pytest.mark.usefixtures("sources")
def test_a_driver_does_not_take_its_own_block_for_one_of_before_once_a_later_one_has_begun(
    tmp_path: Path,
) -> None:
    here = str(tmp_path)
    old, _ = ledger(tmp_path, live=True, fence=claim_epoch(here, lambda least: least))
    claim_epoch(here, lambda least: least)
    with pytest.raises(SupersededError):
        old.reach(1)
    assert old.written == 0, "it releases nothing of what it has just written"


@pytest.mark.usefixtures("sources")
def test_an_empty_block_is_damaged_and_not_waited_for(tmp_path: Path) -> None:
    ledger(tmp_path, live=True)[0].reach(2)
    (tmp_path / "ranges" / "0000000001.json").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"ranges/0000000001\.json in .* is damaged"):
        ledger(tmp_path, live=True)


def lists_less(patch: pytest.MonkeyPatch, *hidden: str) -> None:
    """A store whose listings are late: what is there can be read, and is not in the list."""
    real = Files.names
    patch.setattr(
        Files, "names", lambda self, folder="": [name for name in real(self, folder) if name not in hidden]
    )


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.usefixtures("sources")
def test_first_blocks_that_a_listing_lacks_are_not_taken_for_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trimmed: bool
) -> None:
    made, _ = ledger(tmp_path, live=True, fence=claim_epoch(str(tmp_path), lambda least: least))
    for batch in range(1, 9):
        made.reach(batch)
    if trimmed:
        made.stored(8, 4)
    before = 3 if trimmed else 0
    lists_less(monkeypatch, f"{before + 1:010d}.json", f"{before + 2:010d}.json")
    again, _ = ledger(tmp_path, live=True)
    assert (again.trimmed, again.written) == (before, 8)
    assert sorted(again.ranges["in.0"]) == list(range(before + 1, 9))


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.usefixtures("sources")
def test_first_blocks_that_are_gone_and_were_not_given_up_are_trouble(tmp_path: Path, trimmed: bool) -> None:
    made, _ = ledger(tmp_path, live=True, fence=claim_epoch(str(tmp_path), lambda least: least))
    for batch in range(1, 9):
        made.reach(batch)
    if trimmed:
        made.stored(8, 4)
    gone = f"ranges/{4 if trimmed else 1:010d}.json"
    (tmp_path / gone).unlink()
    with pytest.raises(StoreError, match=f"{gone} in .* is not there and was not given up"):
        ledger(tmp_path, live=True)


@pytest.mark.usefixtures("sources")
def test_a_mark_that_a_listing_lacks_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = ledger(tmp_path, live=True, fence=claim_epoch(str(tmp_path), lambda least: least))
    for batch in range(1, 9):
        made.reach(batch)
    made.stored(8, 4)
    lists_less(monkeypatch, "0000000003.given-up")
    with pytest.raises(StoreError, match="is the listing late"):
        ledger(tmp_path, live=True)


@pytest.mark.parametrize(
    ("before", "now", "field"),
    [
        ("parallelism: 2", "parallelism: 3", r"spec\.sources\[in\]\.parallelism: is 3, and 2 in the batches"),
        ("parallelism: 2", "parallelism: 1", r"spec\.sources\[in\]\.parallelism: is 1, and 2 in the batches"),
        ("in", "other", r"spec\.sources: the batches on record in .* are of a source 'in', too"),
    ],
)
@pytest.mark.usefixtures("sources")
def test_other_source_partitions_on_one_location_are_refused_by_name(
    tmp_path: Path, before: str, now: str, field: str
) -> None:
    ledger(tmp_path, live=True)[0].reach(1)
    text = TOPOLOGY.replace(f"name: {before},", f"name: {now},").replace(
        f"from: {before}}}", f"from: {now}}}"
    )
    resource = load_text(text.replace(before, now) if before != "in" else text)
    with pytest.raises(SpecError, match=field):
        Ledger(str(tmp_path), resource, expand(resource))


@pytest.mark.parametrize("hidden", [(8,), (7, 8), (4, 5, 6, 7, 8)])
@pytest.mark.usefixtures("sources")
def test_last_blocks_that_a_listing_lacks_are_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: tuple[int, ...]
) -> None:
    """Who took the batches in them for not released would go on with other code, though they may have been shown."""
    made, _ = ledger(tmp_path, live=True, fence=claim_epoch(str(tmp_path), lambda least: least))
    for batch in range(1, 9):
        made.reach(batch)
    made.stored(8, 4)
    lists_less(monkeypatch, *(f"{first:010d}.json" for first in hidden))
    again, _ = ledger(tmp_path, live=True)
    assert (again.trimmed, again.written, last_released(Files(str(tmp_path)))) == (3, 8, 8)
    assert sorted(again.ranges["in.0"]) == list(range(4, 9))


def test_a_ledger_that_has_ended_is_read_to_its_end(tmp_path: Path, sources: dict[int, int]) -> None:
    """Its last block may say nothing but that, under the name that would follow."""
    sources.update({0: 3, 1: 3})
    made, _ = ledger(tmp_path, live=True)
    assert (made.reach(3), made.reach(4), made.ended_at) == (3, 3, 3)
    again, _ = ledger(tmp_path, live=True)
    again.require(4)
    assert (again.written, again.ended_at, again.released) == (3, 3, 4)
    assert last_released(Files(str(tmp_path))) == 4


@pytest.mark.usefixtures("sources")
def test_a_checkpoint_whose_batches_are_not_on_record_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First blocks were removed, so their names are free; the batches would be said a second time, from the first row."""
    made, _ = ledger(tmp_path, live=True, fence=claim_epoch(str(tmp_path), lambda least: least))
    for batch in range(1, 9):
        made.reach(batch)
    made.stored(8, 4)
    made.require(8)
    lists_less(monkeypatch, *files(tmp_path))
    again, _ = ledger(tmp_path, live=True)
    with pytest.raises(
        StoreError, match=r"checkpoint 8 is complete, and ranges in .* has batches up to 0 alone"
    ):
        again.require(8)
