"""Operators of one topology with standbys of both kinds and upstream backup: whatever is lost, all is shown once and as
without a failure; at most one of two sends, and both have the same state.
Amnesia beside them: `simulated_world/test_mixed.py`."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from tests.support.hashtags import WITH_STANDBYS
from tests.support.losses import FilesAway, lose_nodes_at_any_moment
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine.test_standbys import (
    STANDBYS,
    back,
    expected,  # noqa: F401 - the output without a failure, which is the same
    finish,
    recover,
    watch,  # noqa: F401 - H1 and H2 in every job here, too
    world_of,
)
from tools.testbed.local_engine import World

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("few_batches_ahead")]
COUNT_AT = WITH_STANDBYS.index("    - name: count")
PARSE, REST = WITH_STANDBYS[:COUNT_AT], WITH_STANDBYS[COUNT_AT:]
ACTIVE = "availability: active-standby"
PASSIVE = "availability: passive-standby\n      standby: {every: 4}"
BACKUP = "availability: upstream-backup"
TEXTS = {
    "active, passive": PARSE + REST.replace(ACTIVE, PASSIVE),
    "passive, active": PARSE.replace(ACTIVE, PASSIVE) + REST,
    "backup, active": PARSE.replace(ACTIVE, BACKUP) + REST,
    "backup, passive": PARSE.replace(ACTIVE, BACKUP) + REST.replace(ACTIVE, PASSIVE),
}


def standbys_of(text: str) -> dict[str, str]:
    """Partition -> node of its standby, of those that are to have one."""
    return {p: n for p, n in STANDBYS.items() if not (BACKUP in text and p.startswith("parse"))}


def plans(world: World, dice: random.Random, mine: Collection[str]) -> Callable[[Sequence[str]], None]:
    """What a coordinator decides; more often than not it puts these standbys elsewhere."""

    def planned(living: Sequence[str]) -> None:
        recover(world, {p: dice.choice(living) for p in mine} if dice.random() < 0.6 else None)

    return planned


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@seeds(range(2), range(2, 6), 94)
def test_nodes_are_lost_at_any_moment(
    tmp_path: Path,
    expected: dict[str, bytes],  # noqa: F811
    seed: int,
    text: str,
) -> None:
    rng = random.Random(seed)
    mine = standbys_of(text)
    world = world_of(tmp_path, mine, text)
    lose_nodes_at_any_moment(world, rng, back, plans(world, rng, mine))
    recover(world)
    finish(world, expected)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@seeds(range(1), range(1, 3), 97)
def test_nodes_are_lost_while_sinks_are_away(
    tmp_path: Path,
    expected: dict[str, bytes],  # noqa: F811
    seed: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was not shown is not lost with its node, and nobody who takes its place shows it twice or otherwise."""
    dice = random.Random(seed)
    mine = standbys_of(text)
    world = world_of(tmp_path, mine, text)
    sinks = FilesAway(world, dice, monkeypatch)

    def some_come_back() -> None:
        if dice.random() < 0.7:
            sinks.come_back()

    lose_nodes_at_any_moment(world, dice, back, plans(world, dice, mine), some_come_back, sinks.leave)
    assert sinks.refused
    sinks.come_back()
    recover(world)
    finish(world, expected)
