"""Who moves first on a node: those that keep up; and those that catch up by the priority of their queries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.node.command import Command, Due, Install
from reprise.spark_jobs.node.lanes import Lanes, weights_of
from reprise.spark_jobs.node.sending import FEW
from reprise.spark_jobs.platform import PLATFORM
from tests.support.scripted import Bench, Script, spans

TWO = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: two, namespace: tests}
spec:
  batch: {interval: 1s}
  sources: [{name: in, class: "tests.support.scripted:Numbers"}]
  operators:
    - {name: cheap, class: "tests.support.scripted:Passing", inputs: [{from: in}], output: {priority: 2}}
    - {name: dear, class: "tests.support.scripted:Passing", inputs: [{from: in}], output: {priority: 9}}
  nodes: {count: 1}
"""
STEP_S = 0.05


def begin(bench: Bench, **changes: Any) -> Command:
    """A job has begun, and what it installs is at work."""
    command = bench.begin(**changes)
    bench.host._join(command)
    return command


def test_a_partition_weighs_as_much_as_the_most_valuable_query_that_needs_it(tmp_path: Path) -> None:
    assert weights_of(Bench(tmp_path, TWO).topology) == {"in.0": 9, "cheap.0": 2, "dear.0": 9}


def test_those_that_keep_up_are_in_their_order_and_of_the_others_the_most_valuable_moves_first() -> None:
    lanes = Lanes({"dear": 9, "cheap": 3})
    assert lanes.divide(["a", "dear", "b", "cheap"], lambda p: p in ("dear", "cheap")) == ["a", "b"]
    had = {"dear": 0.0, "cheap": 0.0}
    for _ in range(1200):
        partition = next(lanes.catching_up())
        lanes.took(partition, 0.01, True)
        had[partition] += 0.01
    assert had == {"dear": pytest.approx(9.0, abs=0.02), "cheap": pytest.approx(3.0, abs=0.02)}


@pytest.mark.parametrize(("dear_s", "cheap_s"), [(0.6, 0.05), (0.05, 0.6)])
def test_a_quarter_of_the_time_is_left_whatever_a_batch_takes(dear_s: float, cheap_s: float) -> None:
    lanes, takes = Lanes({"dear": 9, "cheap": 3}), {"dear": dear_s, "cheap": cheap_s}
    lanes.divide(["dear", "cheap"], lambda _: True)
    had = {"dear": 0.0, "cheap": 0.0}
    while sum(had.values()) < 200.0:
        partition = next(lanes.catching_up())
        lanes.took(partition, takes[partition], True)
        had[partition] += takes[partition]
    assert had["cheap"] == pytest.approx(50.0, abs=1.0)


def test_those_of_one_weight_take_turns() -> None:
    lanes = Lanes({"first": 5, "second": 5, "cheap": 1})
    lanes.divide(["first", "second", "cheap"], lambda _: True)
    had = {"first": 0, "second": 0, "cheap": 0}
    for _ in range(800):
        partition = next(lanes.catching_up())
        lanes.took(partition, 0.01, True)
        had[partition] += 1
    assert abs(had["first"] - had["second"]) <= 1 and had["cheap"] >= 50


def test_one_that_joins_begins_as_who_has_had_least() -> None:
    lanes = Lanes()
    lanes.divide(["first", "second"], lambda _: True)
    lanes.took("first", 5.0, True)
    lanes.took("second", 4.0, True)
    lanes.divide(["first", "second", "third"], lambda _: True)
    lanes.took("third", 1.5, True)
    assert list(lanes.catching_up()) == ["second", "first", "third"]
    assert lanes.divide(["first", "second", "third"], lambda _: False) == ["first", "second", "third"]
    assert not list(lanes.catching_up())


def test_one_that_cannot_move_comes_behind_those_that_have_not_had_their_turn() -> None:
    lanes = Lanes()
    assert not lanes.more()
    lanes.divide(["blocked", "second", "third"], lambda _: True)
    lanes.took("blocked", 0.01, False)
    lanes.took("second", 5.0, False)
    assert next(lanes.catching_up()) == "third" and lanes.more()
    lanes.took("third", 5.0, True)
    assert list(lanes.catching_up()) == ["blocked", "second", "third"], "what it gave may move them"
    for partition in ("blocked", "second", "third"):
        assert lanes.more()
        lanes.took(partition, 0.01, False)
    assert not lanes.more(), "none can move"
    assert lanes.more(), "and all have their turn again later"


def test_a_partition_that_keeps_up_waits_for_one_batch_of_those_that_catch_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cheap` lacks 60 batches, each of which takes 50 ms; every second a batch of `dear` is due."""
    now, steps = [1000.0], list[tuple[str, int, float]]()

    def call(partition: str, name: str, batch: int = 0) -> None:
        if name == "step":
            steps.append((partition, batch, now[0]))
            now[0] += STEP_S

    monkeypatch.setattr(Script, "call", call)
    bench = Bench(tmp_path, TWO)
    bench.host._platform = replace(PLATFORM, elapsed=lambda: now[0])
    at = {"in.0": 60, "cheap.0": 0, "dear.0": 60}
    begin(
        bench,
        installs={p: Install(k) for p, k in at.items()}, positions=at, horizon=64,
        ranges={"in.0": spans(1, 64)}, due=Due(60, 0.0, 1.0),
    )  # fmt: skip
    while now[0] < 1004.5:
        if not bench.host.run(0.02):
            now[0] += 0.01
    late = {batch: at - (1000.0 + batch - 60) for p, batch, at in steps if p == "dear.0"}
    assert late.keys() == {61, 62, 63, 64}
    assert max(late.values()) <= STEP_S + 0.01
    assert [batch for p, batch, _ in steps if p == "cheap.0"][:60] == list(range(1, 61)), "it catches up"


def twenty_batches(folder: Path, dear: tuple[int, int]) -> tuple[Bench, Command]:
    """A source that has read them; its targets are elsewhere: `dear.0` on that slot and at that batch, `cheap.0` at 0."""
    bench, (slot, position) = Bench(folder, TWO), dear
    command = begin(
        bench,
        hosted={"in.0": "1.1.0"}, routes={"in.0": 0, "cheap.0": 1, "dear.0": slot}, horizon=20,
        ranges={"in.0": spans(1, 20)}, positions={"in.0": 0, "cheap.0": 0, "dear.0": position},
    )  # fmt: skip
    while bench.host.run(1.0):
        pass
    return bench, command


def test_a_target_that_lacks_many_batches_gets_some_at_a_time_and_after_the_others(tmp_path: Path) -> None:
    bench, command = twenty_batches(tmp_path, dear=(1, 18))
    sender, sent = bench.host.sender, list[list[tuple[str, int]]]()
    bench.host.runtimes["in.0"].buffers["dear.0"].cursor = 19
    while not sent or sender.cut:
        out = sender.outgoing(command, within_s=60.0)
        sent.append([(m.target, m.batch) for m, _ in out.get(1, [])])
    cheap = [("cheap.0", batch) for batch in range(1, 21)]
    assert sent[0] == [("dear.0", 19), ("dear.0", 20), *cheap[:FEW]]
    assert sent[1:] == [cheap[FEW : 2 * FEW], cheap[2 * FEW :]]


def test_no_more_is_sent_to_those_that_catch_up_once_the_time_has_passed(tmp_path: Path) -> None:
    bench, command = twenty_batches(tmp_path, dear=(2, 0))
    sender, found = bench.host.sender, dict[int, int]()
    sender.clock = iter(range(0, 1000, 2)).__next__  # two seconds from one look to the next
    turns = 0
    while not turns or sender.cut:
        turns += 1
        for slot, messages in sender.outgoing(command, within_s=1.0).items():
            found[slot] = found.get(slot, 0) + len(messages)
    assert found == {1: 20, 2: 20} and turns > 4, "one target in a call"
