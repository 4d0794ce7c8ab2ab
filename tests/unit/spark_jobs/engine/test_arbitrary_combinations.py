"""Passive standbys of operators of which a replay may differ, with what else a topology may have: two of them on a path,
several partitions, states in pages, batches without rows, sinks that show later, moves, pauses, drains and savepoints.
Whatever is lost, each batch is told in one version, and shown once."""

# ruff: noqa: F811 - fixtures of the tests of one such operator, which hold here as well
from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from reprise.spark_jobs import pages
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import Opening, Sink
from reprise.spark_jobs.topology import load_text
from tests.support.coin import TOLD_TO_TWO
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine.test_arbitrary_standbys import (
    AT,
    STANDBYS,
    Readers,
    ends,
    is_ready,
    lose_at_random,
    readers,  # noqa: F401
    recover,
    world_of,
)
from tests.unit.spark_jobs.engine.test_savepoints import Taking, begun_from, from_savepoint
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")

BATCHES = 61
Rows = list[dict[str, Any]]
Story = Mapping[int, Rows]
"""Batch -> rows that are shown of it."""


class Late(Sink):
    """Shows some of what waits each time that it is waited for, as one whose brokers answer after a while.  What waits is
    lost with its partition."""

    there: ClassVar[dict[str, dict[int, Rows]]] = {}
    """What each output partition has shown, in order."""
    wrong: ClassVar[list[str]] = []
    some: ClassVar[Callable[[], int]]
    """How many of the batches that wait are shown now."""

    def open(self, opening: Opening) -> None:
        super().open(opening)
        self._of = opening.place.partition
        self._shown = self.there.setdefault(self._of, {})
        self._waiting: dict[int, Rows] = {}
        if opening.position > max(self._shown, default=0):
            last = max(self._shown, default=0)
            self.wrong.append(f"{self._of} is to go on behind {opening.position}, and has shown {last}")

    def write(self, batch: int, table: pa.Table | None) -> None:
        self._waiting[batch] = [] if table is None else table.to_pylist()

    def settle(self, patience_s: float) -> str | None:
        for batch in sorted(self._waiting)[: type(self).some()]:
            rows = self._waiting.pop(batch)
            last = max(self._shown, default=0)
            if batch > last + 1 or self._shown.setdefault(batch, rows) != rows:
                self.wrong.append(f"{self._of}: batch {batch} after {last}: {rows}")
            self.visible = batch
        return None

    def shown(self) -> list[tuple[int, float]]:
        return []


@pytest.fixture(autouse=True)
def nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Late, "there", {})
    monkeypatch.setattr(Late, "wrong", [])
    shows(monkeypatch, lambda: BATCHES)
    yield
    assert Late.wrong == []


def shows(monkeypatch: pytest.MonkeyPatch, some: Callable[[], int]) -> None:
    monkeypatch.setattr(Late, "some", staticmethod(some), raising=False)


LATE = {"class": f"{__name__}:Late"}
CHAIN = TOLD_TO_TWO.replace(
    "    - name: left\n",
    """    - name: again
      class: tests.support.coin:Retold
      deterministic: false
      inputs: [{from: told}]
      availability: passive-standby
      standby: {every: 3}
    - name: left
""",
).replace("inputs: [{from: told}]\n      output:", "inputs: [{from: again}]\n      output:")
PAGED = TOLD_TO_TWO.replace(
    "    - name: told\n      class: tests.support.coin:Told\n",
    """    - name: parse
      class: reprise.spark_jobs.operators:FlatMap
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets}]
    - name: told
      class: tests.support.coin:Counted
      with: {keys: [tag], aggregate: {"n": "count()"}}
""",
).replace(
    "deterministic: false\n      inputs: [{from: tweets}]",
    "deterministic: false\n      inputs: [{from: parse, by: [tag]}]",
)


def tossed(story: Iterable[Rows]) -> None:
    """Each partition of `told` has tossed once a batch, from its beginning."""
    own: dict[int, int] = {}
    for rows in story:
        for number, row in enumerate(rows):
            own[number] = own.get(number, 0) + row["toss"]
            assert row["own"] == own[number]


def told_on(story: Iterable[Rows]) -> None:
    tossed(story)
    rows = [row for rows in story for row in rows]
    assert len(rows) == BATCHES
    assert all(row["told"] == row["heard"] for row in rows), (
        "it was told of another toss than the one that counts"
    )


def counted(story: Iterable[Rows]) -> None:
    """As without a failure, but for the tosses."""
    alone = load_text(PAGED, changes={"checkpoint.state": "paged"})
    batches = [batch["told.0"] for batch in run_local(alone)]
    expected = [[] if table is None else table.to_pylist() for table in batches]
    assert [[(r["tag"], r["n"]) for r in rows] for rows in story] == [
        [(r["tag"], r["n"]) for r in rows] for rows in expected
    ]


@dataclass(frozen=True)
class Case:
    text: str = TOLD_TO_TWO
    at: Mapping[str, str] = field(default_factory=lambda: AT)
    standbys: Mapping[str, str] = field(default_factory=lambda: STANDBYS)
    changes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("left.0", "right.0")
    check: Callable[[Iterable[Rows]], None] = tossed

    def begin(self, folder: Path) -> World:
        return world_of(folder, self.text, self.at, self.standbys, self.changes)

    def finish(self, world: World, readers: Readers) -> None:
        ends(world, readers)
        stories = [story_of(world, output) for output in self.outputs]
        for story in stories:
            assert list(story) == list(range(1, BATCHES + 1))
            self.check(story.values())
            totals = list(accumulate(sum(row["toss"] for row in rows) for rows in story.values()))
            assert all(
                row.get("total", t) == t
                for t, rows in zip(totals, story.values(), strict=True)
                for row in rows
            )
        assert [[row["toss"] for row in rows] for rows in stories[0].values()] == [
            [row["toss"] for row in rows] for rows in stories[-1].values()
        ]


def story_of(world: World, output: str) -> Story:
    if output in Late.there:
        return Late.there[output]
    operator, _, number = output.rpartition(".")
    files = sorted((world.sink / operator / number).glob("batch-*.jsonl"))
    return {k: [json.loads(row) for row in f.read_text().splitlines()] for k, f in enumerate(files, 1)}


TWO = {"told.0": "c", "told.1": "d"}
ON = AT | {"again.0": "b"}
CASES = {
    "chain": Case(CHAIN, ON, STANDBYS | {"again.0": "a"}, check=told_on),
    "parallel": Case(
        TOLD_TO_TWO.replace("[{from: tweets}]", "[{from: tweets, forward: true}]\n      parallelism: 2"),
        {p: n for p, n in AT.items() if p != "told.0"} | TWO,
        {"told.0": "d", "told.1": "c"},
    ),
    "paged": Case(PAGED, AT | {"parse.0": "a"}, changes={"checkpoint.state": "paged"}, check=counted),
    "sinks-that-show-later": Case(
        TOLD_TO_TWO.replace(
            "      availability: passive", "      output: {priority: 1}\n      availability: passive"
        ),
        changes={f"operators[{name}].output.sink": LATE for name in ("told", "left", "right")},
        outputs=("left.0", "right.0", "told.0"),
    ),
    "batches-without-rows": Case(
        TOLD_TO_TWO.replace("coin:Told", "coin:Seldom").replace(
            "      availability: passive", "      output: {priority: 1}\n      availability: passive"
        ),
        outputs=("left.0", "right.0", "told.0"),
    ),
    "a-reader-with-a-standby": Case(
        TOLD_TO_TWO.replace(
            "output: {priority: 3}",
            "output: {priority: 3}\n      availability: passive-standby\n      standby: {every: 3}",
        ),
        standbys=STANDBYS | {"left.0": "c"},
        changes={f"operators[{name}].output.sink": LATE for name in ("left", "right")},
    ),
}


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SHIFT", 3)
    monkeypatch.setattr(pages, "PAGE_ROWS", 8)
    monkeypatch.setattr(pages, "CHUNK_ROWS", 8)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@seeds(range(2), range(2, 4), 96)
def test_nodes_are_lost_at_any_moment(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch, case: Case, seed: int
) -> None:
    """With it, or in place of it, its standby, jobs and drivers; and a sink may have shown some of what it was given."""
    dice = random.Random(f"{seed} combined")
    shows(monkeypatch, lambda: dice.choice([0, 0, 1, 5, BATCHES]))
    world = case.begin(tmp_path)
    lose_at_random(world, readers, dice)
    case.finish(world, readers)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("node", ["b", "c"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_node_is_lost_and_nobody_goes_back(
    tmp_path: Path, readers: Readers, case: Case, node: str
) -> None:
    world = case.begin(tmp_path)
    world.run(lambda e: past(25)(e) and is_ready(e))
    waits = {p for p in world.engine.standbys.output_waits if case.at[p] == node}
    at = {p: world.engine.progress.standbys[p] for p in waits}
    world.nodes.lose(node)
    tick(world)
    assert waits <= world.engine.failed.keys()
    assert recover(world, "a")
    assert all(world.engine.positions[p] >= k for p, k in at.items())
    case.finish(world, readers)
    assert world.engine.desired.generation == 1


def test_what_a_sink_was_given_and_had_not_shown_is_shown_after_two_losses(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A complete checkpoint says that it may be shown, and not that it is."""
    case = CASES["sinks-that-show-later"]
    world = case.begin(tmp_path)
    engine = world.engine
    world.run(lambda e: len(Late.there.get("told.0", ())) >= 10)
    shows(monkeypatch, lambda: 0)
    shown = len(Late.there["told.0"])
    world.run(lambda e: e.punctuations.newest >= shown + 10 and is_ready(e))
    world.nodes.lose("c")
    tick(world)
    assert recover(world, "b")
    newest = engine.punctuations.newest
    world.run(lambda e: is_ready(e) and e.punctuations.newest > newest)
    world.nodes.lose("d")
    tick(world)
    assert recover(world, "a")
    assert len(Late.there["told.0"]) == shown
    shows(monkeypatch, lambda: BATCHES)
    case.finish(world, readers)
    assert engine.desired.generation == 1


@pytest.mark.parametrize("name", [None, "chain"])
def test_what_waits_leaves_where_nothing_more_is_released(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """It is less than is sent otherwise.  The next batch is not due, or the stream is paused, or it is held up by the
    readers of what waits."""
    released = [8]
    monkeypatch.setattr(engine_module.Engine, "_due", lambda _: released[0])
    changes = {f"operators[{o}].standby": {"every": 1000} for o in ("told", "again")[: 2 if name else 1]}
    case = replace(CASES[name] if name else Case(), changes=changes | {"checkpoint.everyBatches": 1000})
    world = case.begin(tmp_path)
    world.run(
        lambda e: is_ready(e) and {*e.positions.values(), *e.progress.standbys.values()} == {8}, limit=60
    )
    released[0] = 13
    world.run(lambda e: set(e.positions.values()) == {13}, limit=60)
    assert world.engine.problems == [], "no standby was dropped for that"


def test_one_at_work_that_is_moved_goes_on_at_its_standby(tmp_path: Path, readers: Readers) -> None:
    """Before its node goes: what it has made since reached nobody."""
    case = Case()
    world = case.begin(tmp_path)
    world.run(lambda e: past(25)(e) and is_ready(e))
    ahead = world.engine.positions["told.0"]
    at = world.engine.progress.standbys["told.0"]
    world.want(1, world.engine.punctuations.newest, AT | {"told.0": "d"}, retain=True)
    assert world.engine.positions["told.0"] == at <= ahead
    tick(world)
    world.nodes.lose("c")
    case.finish(world, readers)
    assert world.engine.desired.generation == 1


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_reader_at_work_that_is_moved_is_given_what_it_was_given_before(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    """From a checkpoint, before its node goes; nobody goes back for it.  Its sink may not have shown what it was given."""
    world = case.begin(tmp_path)
    world.run(past(20))
    shows(monkeypatch, lambda: 0)
    newest = world.engine.punctuations.newest
    world.run(lambda e: e.punctuations.newest > newest and is_ready(e))
    at = world.engine.desired.assignment["left.0"]
    to = next(n for n in "bcd" if n not in (at, case.standbys.get("left.0")))
    world.want(
        1, world.engine.punctuations.newest, {**case.at, "left.0": to}, retain=True, standbys=case.standbys
    )
    tick(world)
    assert not world.engine.failed
    shows(monkeypatch, lambda: BATCHES)
    case.finish(world, readers)
    assert world.engine.desired.generation == 1


def test_a_stream_that_is_drained_has_shown_all_that_it_gave(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["sinks-that-show-later"]
    world = case.begin(tmp_path)
    shows(monkeypatch, lambda: 1)
    world.run(lambda e: past(20)(e) and is_ready(e))
    engine = world.engine
    engine.drain.asked = True
    world.run(lambda e: e.drained is not None)
    drained = engine.drained
    assert drained is not None
    assert all(list(story_of(world, output)) == list(range(1, drained + 1)) for output in case.outputs)


def test_a_savepoint_has_what_was_shown_and_what_follows_goes_on_from_it(
    tmp_path: Path, readers: Readers
) -> None:
    case = Case()
    world = case.begin(tmp_path)
    world.run(lambda e: past(15)(e) and is_ready(e))
    savepoint = Taking(world).take()
    shown = story_of(world, "left.0")
    readers.go_back(savepoint.position)
    resource = from_savepoint(world.resource, world)
    second = begun_from(resource, tmp_path, savepoint)
    second.run(lambda e: e.done)
    after = {k: story_of(second, output) for k, output in enumerate(case.outputs)}
    assert list(after[0].values()) == list(after[1].values())
    (first,) = after[0][1]
    (last,) = shown[savepoint.position]
    assert (first["own"] - first["toss"], first["total"] - first["toss"]) == (last["own"], last["total"])
    assert readers.differ == []
