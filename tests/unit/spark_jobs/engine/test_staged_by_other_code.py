"""Output that waits for a checkpoint as the code that gave it could not be replayed, and an update after which it could be:
it is shown first, what follows waits for nothing, and until then no standby takes it for shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import fault_free, placed
from tests.support.hashtags import WITH_STANDBYS
from tests.support.losses import refuse_output_of, tick_losing
from tests.unit.spark_jobs.engine.test_standbys import AT, NODES, STANDBYS, all_ready, recover
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("few_batches_ahead")

CHECKPOINT = {f"operators[{name}].availability": "checkpoint" for name in ("parse", "count")}
BEFORE = {
    "arbitrary": {**CHECKPOINT, "operators[parse].deterministic": False},
    "arrival": {**CHECKPOINT, "batch.order": "arrival"},
}
KINDS = {
    "active": {},
    "passive": {"operators[count].availability": "passive-standby"},
    "checkpoint": CHECKPOINT,
}


def begun(folder: Path, changes: Mapping[str, object]) -> World:
    return placed(load_text(WITH_STANDBYS, changes=changes), folder, AT)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(begun(tmp_path_factory.mktemp("fault-free"), CHECKPOINT))


def updated(folder: Path, before: str, kind: str) -> World:
    """A topology whose output waited for checkpoints, a few batches after all began anew with code that can be replayed."""
    world = begun(folder, BEFORE[before])
    world.run(lambda e: e.punctuations.newest >= 20 and any(e.staged.values()))
    newest = world.engine.punctuations.newest
    assert not {f"count/0/batch-{newest:08d}.jsonl"} & world.output().keys(), "it waits"
    world.resource = load_text(WITH_STANDBYS, changes=KINDS[kind])
    world.driver()
    world.engine.begin(newest)
    world.nodes.lose(*NODES)
    world.nodes.start(*NODES)
    able = world.engine.standbys.able
    world.want(5, newest, AT, standbys={p: n for p, n in STANDBYS.items() if p in able})
    return world


def staging(world: World) -> list[str]:
    """Partitions at work whose output waits for a checkpoint."""
    runtimes = [r for host in world.nodes.hosts.values() for r in host.runtimes.values()]
    return [r.partition.id for r in runtimes if isinstance(r, OperatorRuntime) and r.staged is not None]


def counts(output: dict[str, bytes]) -> list[bytes]:
    """The rows of `count`, whose order within a tag is given, and in the order of arrival that between tags is not."""
    return sorted(
        row for name, rows in output.items() if name.startswith("count/") for row in rows.splitlines()
    )


def finish(world: World, expected: dict[str, bytes], before: str) -> None:
    world.run(lambda e: e.done or bool(e.not_kept))
    assert world.engine.done, world.engine.not_kept
    output = world.output()
    assert output.keys() == expected.keys()
    assert counts(output) == counts(expected)
    assert before == "arrival" or output == expected


@pytest.mark.wide
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", BEFORE)
def test_nothing_waits_any_more_once_what_waited_is_shown(
    tmp_path: Path, expected: dict[str, bytes], before: str, kind: str
) -> None:
    world = updated(tmp_path, before, kind)
    newest = world.engine.punctuations.newest
    world.run(past(newest + 5))
    assert staging(world) == []
    assert not any(world.engine.staged.values())
    shown = min(world.engine.positions[f"count.{i}"] for i in range(2))
    assert {
        f"count/{i}/batch-{b:08d}.jsonl" for i in range(2) for b in range(1, shown + 1)
    } <= world.output().keys()
    assert shown > world.engine.punctuations.newest
    world.run(all_ready)
    finish(world, expected, before)


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("kind", ["active", "passive"])
@pytest.mark.parametrize("before", BEFORE)
def test_a_node_is_lost_in_the_job_that_tells_of_a_checkpoint(
    tmp_path: Path, expected: dict[str, bytes], before: str, kind: str, stage: int
) -> None:
    """What waited for the checkpoint is not shown yet, and the standby of its partition goes on behind that."""
    world = updated(tmp_path, before, kind)
    world.run(all_ready)
    newest = world.engine.punctuations.newest
    world.run(lambda e: e.punctuations.newest > newest)
    tick_losing(world, "c", stage)
    world.run(lambda e: "count.0" in e.failed)
    assert "count.0" in recover(world)
    finish(world, expected, before)


@pytest.mark.parametrize("before", BEFORE)
def test_no_active_standby_begins_while_what_waited_cannot_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes], before: str
) -> None:
    """It would keep nothing of it, as its partition has settled these batches; and the partition is lost with them."""
    world = updated(tmp_path, before, "active")
    with monkeypatch.context() as store:
        refuse_output_of("count", store)
        tick(world, 6)
        assert {"count.0", "count.1"} <= set(staging(world))
        assert set(world.engine.standbys.there) <= {"parse.0", "parse.1"}
        world.nodes.lose("c")
        world.run(lambda e: "count.0" in e.failed)
        assert "count.0" not in recover(world)
    world.run(lambda e: not staging(world))
    finish(world, expected, before)
