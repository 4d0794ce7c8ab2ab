"""What skips on record mean for one partition: whom it does not hear, what it does not send, where it begins anew."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.node.command import Command, Install
from reprise.spark_jobs.node.orders import Orders
from reprise.spark_jobs.node.skipping import NOTHING, skip, skipped, stepped
from reprise.spark_jobs.state.skips import Skip, SkipRecords
from tests.unit.spark_jobs.node.test_runtime import ANYBODY, hears, made
from tests.unit.spark_jobs.state.test_versions import COMMAND, TOPOLOGY

SKIP = Skip("mid.0", 9, {"out.0": 4, "out.1": 9}, 3, {"out.0": (5, 12), "mid.0": (4, 9)})


def test_a_reader_is_stepped_without_what_it_has_not_applied() -> None:
    found = skipped("out.0", ["mid.0", "mid.1"], [SKIP], ())
    assert [b for b in range(1, 15) if found.lacks("mid.0", b)] == [5, 6, 7, 8, 9]
    assert not any(found.lacks("mid.1", b) for b in range(1, 15))
    assert [b for b in range(1, 15) if found.marks(b)] == list(range(5, 13))
    assert skipped("out.1", ["mid.0"], [SKIP], ()) == NOTHING


def test_who_begins_anew_forgets_what_it_was_and_sends_nothing_of_the_gap() -> None:
    found = skipped("mid.0", ["in.0"], [SKIP], ())
    assert found.anew == {9}
    assert [found.heard("out.0", k) for k in (3, 4, 8, 9, 10)] == [3, 9, 9, 9, 10]
    assert [found.heard("out.1", k) for k in (3, 9)] == [3, 9]


def test_of_what_is_sealed_nothing_is_taken_in_and_nothing_is_left_out() -> None:
    found = skipped("out.0", ["mid.0", "mid.1"], [], ["mid.0", "other.0"])
    assert found.sealed == {"mid.0"}
    assert found.refuses("mid.0", 7)
    assert not found.lacks("mid.0", 7)
    assert not found.refuses("mid.1", 7)


def test_where_nothing_is_skipped_it_costs_nothing() -> None:
    assert skipped("out.0", ["mid.0"], (), ()) is NOTHING


@pytest.mark.parametrize(
    "command",
    [
        replace(COMMAND, skips=(SKIP, Skip("mid.1", 3)), sealed=("mid.1",)),
        replace(COMMAND, hosted={"o.0": "1.1.1"}, installs={"o.0": Install(9, shown=4)}),
    ],
)
def test_hosts_are_told(command: Command) -> None:
    (order,) = Dispatch(TOPOLOGY).orders(["n"], [command])
    read = Orders().read(order)
    assert (read.skips, read.sealed, read.installs) == (command.skips, command.sealed, command.installs)


def test_a_record_comes_back() -> None:
    assert Skip.parse(json.loads(json.dumps(asdict(SKIP)))) == SKIP
    assert SKIP.last == 12


# -- a partition at work -------------------------------------------------------------------------------------------------


def test_a_replay_comes_to_the_state_with_which_it_began_anew(tmp_path: Path) -> None:
    runtime = made(tmp_path, "back.0")
    skip(runtime, replace(COMMAND, skips=(Skip("back.0", 2),)))
    hears(runtime, 1, 2, 3, watermark=7)
    states = []
    while runtime.advance(ANYBODY):
        states.append((runtime.state, runtime.watermark))
    assert states == [(1, 7), (None, None), (3, 7)]


def test_a_reader_goes_through_the_gap_without_rows_and_at_its_watermark(tmp_path: Path) -> None:
    runtime = made(tmp_path, "back.0")
    hears(runtime, 1, watermark=7)
    assert runtime.advance(ANYBODY)
    hears(runtime, 2, 4, watermark=9)
    skip(runtime, replace(COMMAND, skips=(Skip("mid.0", 3, {"back.0": 1}),)))
    assert list(runtime.inbox["mid.0"]) == [4]
    hears(runtime, 2, 3, watermark=9)  # who has the rows after a rollback is not heard
    while runtime.advance(ANYBODY):
        pass
    given = runtime.operator.given  # type: ignore[attr-defined]
    assert [(i.batch, len(i.inputs), i.watermark) for i in given] == [
        (1, 1, 7),
        (2, 0, 7),
        (3, 0, 7),
        (4, 1, 9),
    ]


def test_a_batch_that_was_applied_counts_as_stepped_before_it_is_handed_on(tmp_path: Path) -> None:
    runtime = made(tmp_path, "back.0")
    hears(runtime, 1, 2)
    runtime.advance(ANYBODY)
    runtime.unfinished = runtime._step(2)
    assert runtime.position == 1
    assert stepped([runtime], ["mid.0"]) == {"mid.0": {"back.0": 2}}
    skip(runtime, replace(COMMAND, sealed=("mid.0",)))
    hears(runtime, 3)
    assert runtime.advance(ANYBODY)
    assert not runtime.advance(ANYBODY)


def test_a_target_is_spared_gaps_that_touch() -> None:
    """Lost again, with a reader that was in the middle of the first gap."""
    twice = [
        Skip("mid.0", 30, {"out.0": 23}),
        Skip("mid.0", 32, {"out.0": 29}),
        Skip("mid.0", 40, {"out.0": 34}),
    ]
    found = skipped("mid.0", [], twice, ())
    assert [found.heard("out.0", k) for k in (22, 23, 29, 31, 33, 34, 40)] == [22, 32, 32, 32, 33, 40, 40]


def test_a_record_that_was_listed_and_cannot_be_read_is_not_one_without_skips(tmp_path: Path) -> None:
    records = SkipRecords(str(tmp_path), None)
    assert records.read() is None
    records.write([])
    assert records.read() == ()
    (tmp_path / "skipped" / "00000000.json").unlink()
    assert records.read() is None
    dangling = tmp_path / "skipped" / "00000007.json"
    dangling.symlink_to(tmp_path / "nowhere")  # listed, and not there when it is read
    with pytest.raises(StoreError, match="it was listed, and is not there"):
        records.read()
