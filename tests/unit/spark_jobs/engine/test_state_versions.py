"""States that another version of a class has stored: taken over, or refused and not called damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.contract import Inbox, Operator, Place, Tables
from reprise.spark_jobs.errors import SpecError, StateVersionError
from reprise.spark_jobs.node.state_tables import (
    STATE_VERSION,
    WATERMARK,
    frozen,
    restored,
    version_of,
    watermark_table,
)
from reprise.spark_jobs.operators import KeyedCount
from reprise.spark_jobs.state.state_versions import require_readable_states
from reprise.spark_jobs.topology import load_text, override
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World

HERE = __name__


class Second(KeyedCount):
    """Takes nothing over."""

    state_version: ClassVar[int] = 2


class Third(KeyedCount):
    """Takes version 2 over, which counted as the first did, and not version 1."""

    state_version: ClassVar[int] = 3
    oldest_state_version: ClassVar[int | None] = 2
    seen: ClassVar[list[int]] = []

    def upgrade_state(self, place: Place, version: int, tables: Tables) -> Tables:
        self.seen.append(version)
        return tables


class Spending(Operator):
    """Version 1 had euros."""

    state_version: ClassVar[int] = 2

    def initial(self, place: Place) -> int:
        return 0

    def step(self, state: int, inbox: Inbox) -> tuple[int, None]:
        return state, None

    def freeze(self, state: int) -> Callable[[], Tables]:
        return lambda: {"sum": pa.table({"cents": [state]})}

    def restore(self, place: Place, tables: Tables) -> int:
        return int(tables["sum"]["cents"][0].as_py())

    def upgrade_state(self, place: Place, version: int, tables: Tables) -> Tables:
        assert version == 1
        return {"sum": pa.table({"cents": pc.multiply(tables["sum"]["euros"], 100)})}


def test_restore_is_given_what_the_upgrade_has_made() -> None:
    place, operator = Place("spending", 0, 1), Spending()
    kept = {WATERMARK: watermark_table(7), "sum": pa.table({"euros": [3]})}
    assert restored(operator, place, kept) == 300
    stored = frozen(operator, False, 250)()
    assert version_of(stored) == 2
    assert restored(operator, place, {**stored, **{WATERMARK: watermark_table(7)}}) == 250
    later = {**stored, STATE_VERSION: pa.table({"version": [3]})}
    with pytest.raises(StateVersionError, match="has version 3, and Spending reads versions 1 to 2"):
        restored(operator, place, later)


def changed(world: World, name: str) -> None:
    """The next driver has another class, and all nodes are new."""
    world.resource = override(world.resource, {"operators[count].class": f"{HERE}:{name}"})
    world.nodes.lose(*list(world.nodes.hosts))
    world.driver()
    world.nodes.start("a", "b", "c")


def at(world: World) -> int:
    return max(world.engine.store.positions())


def ready(world: World, name: str) -> None:
    """At work with this class, with a checkpoint of its own."""
    changed(world, name)
    newest = at(world)
    world.engine.begin(newest)
    world.want(1, newest, world.spread("a", "b", "c"))
    world.run(lambda e: e.punctuations.newest > newest)


@pytest.mark.parametrize("state", ["arrays", pytest.param("paged", marks=pytest.mark.wide)])
def test_the_version_is_stored_and_an_older_one_is_taken_over(tmp_path: Path, state: str) -> None:
    first = {
        "operators[count].class": f"{HERE}:Second",
        "sources[tweets].with.batches": 120,
        "checkpoint.state": state,
    }
    world = begun(override(load_text(DIAMOND), first), tmp_path)
    world.run(lambda e: e.punctuations.newest >= 10)
    manifest = world.engine.store.manifest(at(world))
    assert {p: f.state_version for p, f in manifest.files.items() if p.startswith("count")} == {
        f"count.{i}": 2 for i in range(3)
    }
    Third.seen.clear()
    ready(world, "Third")
    assert Third.seen == [2, 2, 2]
    manifest = world.engine.store.manifest(at(world))
    assert {f.state_version for p, f in manifest.files.items() if p.startswith("count")} == {3}
    require_readable_states(world.resource, world.engine.store, at(world))


@pytest.mark.parametrize(
    ("was", "now", "reason"),
    [
        (
            "reprise.operators:KeyedCount",
            "Second",
            "has version 1, and .*Second' reads version 2 alone: define",
        ),
        (
            "reprise.operators:KeyedCount",
            "Third",
            "has version 1, and .*Third' reads versions 2 to 3: define",
        ),
        pytest.param(
            f"{HERE}:Third",
            "Second",
            "has version 3, and .* go back to the newer class",
            marks=pytest.mark.wide,
        ),
    ],
)
def test_what_is_not_taken_over_is_refused_before_the_start_and_set_aside_at_a_host(
    tmp_path: Path, was: str, now: str, reason: str
) -> None:
    first = {"operators[count].class": was, "sources[tweets].with.batches": 120}
    world = begun(override(load_text(DIAMOND), first), tmp_path)
    world.run(lambda e: e.punctuations.newest >= 10)
    changed(world, now)
    newest = at(world)
    with pytest.raises(SpecError, match=reason) as refused:
        require_readable_states(world.resource, world.engine.store, newest)
    assert refused.value.field == "spec.operators[count].class"
    world.engine.begin(newest)
    world.want(1, newest, world.spread("a", "b", "c"))
    world.run(lambda e: {"count.0", "count.1", "count.2"} <= e.failed.keys())
    failure = world.engine.failed["count.0"]
    assert failure.kind is FailureKind.POISON
    assert "StateVersionError" in failure.reason
    assert world.engine.bad_checkpoints == set(), "an older checkpoint would be behind what is shown"


def test_eventual_checkpoints_know_no_versions() -> None:
    changes = {
        "operators[count].class": f"{HERE}:Second",
        "checkpoint.protocol": "eventual",
        "checkpoint.log": "checkpointed",
    }
    with pytest.raises(SpecError, match="`state_version` 2, which is not tried"):
        load_text(DIAMOND, changes=changes)
