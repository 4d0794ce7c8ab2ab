"""Output that waits for a checkpoint is not shown, whatever the position of its partition is: who loses it makes it again,
or says that it is missing."""

# ruff: noqa: F811 - the output without a failure, which is the same
from __future__ import annotations

from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.algorithms.positions import Origin
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.topology import load_text
from tests.support.hashtags import SKIPPED
from tests.support.losses import refuse_output_of
from tests.unit.spark_jobs.engine.test_upstream_backup import AT, NODES, expected, world_of  # noqa: F401
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")

NAMES = ("parse", "window", "best", "all")


def with_waiting_output(folder: Path, patch: pytest.MonkeyPatch, availability: str) -> World:
    """The code was arbitrary when the checkpoint was taken, so what goes on from there stages its output until it is shown,
    under code and an availability that would let it begin anew; and its store takes nothing for a while."""
    world = world_of(folder, {"operators[window].deterministic": False})
    world.run(lambda e: e.punctuations.newest >= 20 and past(22)(e))
    newest = world.engine.punctuations.newest
    world.resource = load_text(
        SKIPPED, changes={f"operators[{name}].availability": availability for name in NAMES}
    )
    world.driver()
    world.engine.begin(newest)
    world.nodes.lose(*NODES)
    world.nodes.start(*NODES)
    world.want(5, newest, AT)
    with patch.context() as store:
        refuse_output_of("window", store)
        world.run(past(newest + 5))
    runtime = world.nodes.hosts["d"].runtimes["window.0"]
    assert isinstance(runtime, OperatorRuntime)
    assert runtime.staged, "output waits for the checkpoint"
    assert world.engine.punctuations.newest == newest
    assert "window.0" not in world.engine.progress.backed
    return world


@pytest.mark.wide
@pytest.mark.parametrize("placed", ["where it was", "elsewhere"])
@pytest.mark.parametrize("kind", [FailureKind.STATE_LOST, FailureKind.NODE_LOST])
@pytest.mark.parametrize("availability", ["checkpoint", "upstream-backup", "amnesia"])
def test_output_that_waits_for_a_checkpoint_is_made_again_or_marked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: dict[str, bytes],
    availability: str,
    kind: FailureKind,
    placed: str,
) -> None:
    world = with_waiting_output(tmp_path, monkeypatch, availability)
    newest = world.engine.punctuations.newest
    world.nodes.lose("d")
    if kind is FailureKind.STATE_LOST:  # the process of its host begins anew on a node that lives
        world.nodes.start("d")
    tick(world, 4)  # one fails, one finds out, and one asks the readers what they have applied
    engine = world.engine
    assert engine.failed["window.0"].kind is kind
    assert engine.punctuations.newest == newest
    if placed == "elsewhere":
        world.want(5, newest, {**AT, "window.0": "a"}, retain=True)
    else:  # another generation tells the new try from the old one
        world.nodes.start("d")
        world.want(5, newest, AT, retain=True, lines={"window.0": Origin(6, newest)})
    assert engine.upstream.install("window.0") is None
    assert engine.skipping.install("window.0") is None
    world.run(lambda e: e.done or bool(e.not_kept))
    assert engine.done
    assert world.output() == expected


@pytest.mark.parametrize("availability", ["checkpoint", "upstream-backup", "amnesia"])
def test_a_partition_whose_place_is_taken_has_not_shown_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes], availability: str
) -> None:
    """Its node lives; it is let go of for a while, and is wanted again."""
    world = with_waiting_output(tmp_path, monkeypatch, availability)
    newest = world.engine.punctuations.newest
    world.want(5, newest, {p: n for p, n in AT.items() if p != "window.0"}, retain=True)
    tick(world, 4)
    assert "window.0" not in world.engine.upstream._shown, "nobody would be fed what it had not shown"
    world.want(5, newest, AT, retain=True)
    world.run(lambda e: e.done or bool(e.not_kept))
    assert world.engine.done
    assert world.output() == expected
