"""States in pages, by either protocol: whatever is lost and when, no byte of the output changes, and whatever is on record
can be restored from what is stored."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.spark_jobs import pages, spill
from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.state import page_file
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.engine_worlds import all_anew, begun, fault_free
from tests.support.losses import lose_at_any_stage
from tests.support.seeds import soak_seeds
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.engine.test_uncoordinated import (
    goes_on_from_the_one_before,
    installed,
    restore,
    to_the_end,
)
from tools.testbed.local_engine import World, tick

BATCHES = 40
PROTOCOLS = {
    "coordinated": {},
    "memory": {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"},
    "checkpointed": {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "checkpointed"},
}


def resource_of(protocol: str, state: str = "paged", keep: int = 1) -> StreamTopology:
    changes = {"sources[tweets].with.batches": BATCHES, "checkpoint.state": state, "checkpoint.keep": keep}
    text = DIAMOND.replace("everyBatches: 10", "everyBatches: 4")
    return override(load_text(text), {**changes, **PROTOCOLS[protocol]})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, lines_at_once: None) -> None:
    """Several pages a state and few files."""
    monkeypatch.setattr(pages, "SHIFT", 3)
    monkeypatch.setattr(pages, "PAGE_ROWS", 8)
    monkeypatch.setattr(pages, "CHUNK_ROWS", 8)
    monkeypatch.setattr(page_file, "MOST_FILES", 5)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(begun(resource_of("coordinated", "arrays"), tmp_path_factory.mktemp("fault-free")))


def assert_all_on_record_can_be_restored(world: World) -> int:
    """How many files of earlier checkpoints their states need."""
    store = CheckpointStore(str(world.checkpoints))
    manifests = [store.verify(position) for position in store.positions()]
    return sum(len(file.others) for manifest in manifests for file in manifest.files.values())


@pytest.mark.wide
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_on_record_shares_files_and_stays_whole(
    protocol: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world, others = begun(resource_of(protocol), tmp_path), 0
    while not world.engine.done:
        tick(world)
        others += assert_all_on_record_can_be_restored(world)
    assert others > 20
    assert world.output() == expected


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(3))
def test_losses_change_no_byte_with_states_on_disk(
    expected: dict[str, bytes], tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which nothing may be in memory; and what was lost with a node begins from its checkpoint in files, too."""
    monkeypatch.setattr(spill, "LEAST", 1)
    monkeypatch.setattr(spill, "BLOCK", 16384)
    dice = random.Random(seed)
    resource = override(resource_of("coordinated"), {"checkpoint.stateMemory": "1"})
    world, most = begun(resource, tmp_path), 0
    for k in range(3):
        tick(world, dice.randint(5, 12))
        most = max(most, *(held.state_disk for held in world.engine.buffers.values()))
        lose_at_any_stage(world, dice)
        tick(world, dice.randint(0, 3))
        world.nodes.start(f"new{k}")
        restore(world, f"new{k}", world.engine.desired.generation + 1)
    to_the_end(world)
    assert most > 0
    assert world.output() == expected
    told = {problem for problem in world.engine.problems if "stateMemory" in problem}
    assert all("what finds their keys" in problem for problem in told), told
    assert_all_on_record_can_be_restored(world)


@pytest.mark.wide
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", [*range(3), *soak_seeds(27)])
def test_random_losses_change_no_byte(
    protocol: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    world = begun(resource_of(protocol, keep=dice.randint(1, 2)), tmp_path)
    tick(world, dice.randint(1, 25))
    for k in range(5):
        lose_at_any_stage(world, dice)
        tick(world, dice.randint(0, 3))
        world.nodes.start(f"new{k}")
        everything = protocol == "coordinated" or dice.random() < 0.2
        restore(world, f"new{k}", world.engine.desired.generation + everything)
        for _ in range(dice.randint(2, 12)):
            tick(world)
            assert_all_on_record_can_be_restored(world)
    to_the_end(world)
    assert world.output() == expected


@pytest.mark.parametrize("state", ["arrays", "paged"])
def test_what_a_partition_far_behind_the_line_stores_stays(state: str, tmp_path: Path) -> None:
    """Its acknowledgement comes with a later report: what was removed meanwhile would be chosen, and called damaged."""
    world = begun(resource_of("checkpointed", state), tmp_path)
    world.run(lambda e: e.punctuations.newest > 12)
    lines, store = world.engine.lines, world.engine.store
    was = lines.snapshots["count.0"][-1]
    lines.origins["count.0"] = replace(was, position=5, sent=5, file=None)
    lines._last.pop("count.0", None)  # as `take` leaves it
    file = store.write_state(6, "count.0", "host-x.9", {"t": pa.table({"n": [1]})})
    lines.prune(())
    assert (world.checkpoints / file.path).exists()
    lines.acknowledge(Ack("count.0", "9", 6, file.to_json()))
    lines.prune(())
    assert (world.checkpoints / file.path).exists(), "nothing newer is stored by this installation"
    later = store.write_state(was.position + 4, "count.0", "host-x.9", {"t": pa.table({"n": [2]})})
    lines.acknowledge(Ack("count.0", "9", was.position + 4, later.to_json()))
    lines.prune(())
    assert not (world.checkpoints / file.path).exists()


@pytest.mark.parametrize("protocol", ["coordinated", "checkpointed"])
def test_another_way_of_storing_goes_on_from_what_is_there(
    protocol: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """A new driver each time, as after a change of the resource: whole, in pages, whole."""
    world = begun(resource_of(protocol, "arrays"), tmp_path)
    for number, state in enumerate(("paged", "arrays")):
        until = world.engine.punctuations.newest + 5
        world.run(lambda e, until=until: e.punctuations.newest > until or e.done)  # type: ignore[misc]
        world.resource = resource_of(protocol, state)
        all_anew(world, world.epochs + 5, f"d{number}", f"e{number}")
        tick(world, 3)
        assert_all_on_record_can_be_restored(world)
    to_the_end(world)
    assert world.output() == expected
    assert assert_all_on_record_can_be_restored(world) == 0


@pytest.mark.wide
def test_a_damaged_page_is_said_and_the_line_before_is_taken(
    expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of("checkpointed", keep=3), tmp_path)
    world.run(lambda e: e.punctuations.newest > 8)
    world.forget()
    lines = world.engine.lines
    lost = next(p for p in world.topology.order if p.startswith("count") and len(lines.snapshots[p]) > 1)
    newest = lines.snapshots[lost][-1]
    assert newest.file is not None
    before = {path for s in lines.snapshots[lost][:-1] if s.file is not None for path in s.file.paths}
    assert newest.file.path not in before
    damaged = world.checkpoints / newest.file.path
    damaged.write_bytes(damaged.read_bytes()[:-40])
    goes_on_from_the_one_before(world, lost, newest)
    assert world.output() == expected
    assert installed(world)
