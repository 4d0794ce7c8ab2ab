"""Planned moves on hosts in this process: whatever goes where, and whatever is lost meanwhile, the output stays as it is."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import begun
from tests.support.seeds import soak_seeds
from tests.unit.spark_jobs.engine.test_recovery import COIN, DIAMOND
from tests.unit.spark_jobs.engine.test_scope import in_the_middle, installed, resource_of
from tools.testbed.local_engine import World, tick


def prepare(world: World) -> int:
    """Ask for a checkpoint behind what is released, as the scheduler does for a move, and wait for it; its position."""
    engine = world.engine
    after = engine.horizon
    world.want(
        1, engine.punctuations.newest, dict(engine.desired.assignment), retain=True, lines=None, after=after
    )
    world.run(lambda e: e.punctuations.newest > after or e.punctuations.newest >= e.horizon)
    return engine.punctuations.newest


def move(world: World, to: dict[str, str]) -> None:
    """Give partitions to other nodes, as the scheduler does when the checkpoint is complete."""
    engine = world.engine
    world.want(1, engine.punctuations.newest, {**engine.desired.assignment, **to}, retain=True)


def over(world: World) -> None:
    engine = world.engine
    world.want(1, engine.punctuations.newest, dict(engine.desired.assignment))


@pytest.mark.wide
@pytest.mark.parametrize("scope", ["auto", "ancestors", "global"])
@pytest.mark.parametrize("node", ["b", *(pytest.param(n, marks=pytest.mark.wide) for n in "ac")])
def test_a_node_is_emptied_and_nobody_else_goes_back(
    text: str, expected: dict[str, bytes], tmp_path: Path, node: str, scope: str
) -> None:
    world = begun(resource_of(text, scope=scope), tmp_path)
    newest = in_the_middle(world)
    before = installed(world)
    going = [p for p, n in world.engine.desired.assignment.items() if n == node]
    world.nodes.start("d")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        assert prepare(world) > newest
        assert installed(world) == before, "until here everything runs as before"
        reached = dict(world.engine.positions)
        move(world, dict.fromkeys(going, "d"))
        tick(world)
        now = installed(world)
        assert {p for p in before if now[p] != before[p]} == set(going)
        at = world.engine.positions
        assert all(at[p] >= reached[p] for p in before if p not in going)
        world.run(lambda e: not e.installing and all(e.positions[p] >= reached[p] for p in going))
    over(world)
    world.nodes.lose(node)
    world.run(lambda e: e.done)
    assert not world.engine.failed, "nothing was lost with it"
    assert not world.engine.not_kept
    assert world.output() == expected


def test_the_checkpoint_comes_at_once_and_alone(tmp_path: Path) -> None:
    """However seldom the policy takes one, and none but that while it is waited for."""
    world = begun(resource_of(DIAMOND), tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        newest = in_the_middle(world)
        after = world.engine.horizon
        found = prepare(world)
        assert newest < found <= after + 2
        world.run(lambda e: e.horizon > found + 10)
        assert world.engine.punctuations.newest == found
        assert not world.engine.punctuations.open


@pytest.mark.parametrize("seed", [0, 1, 2, *soak_seeds(7)])
def test_moves_and_losses_at_random(text: str, expected: dict[str, bytes], tmp_path: Path, seed: int) -> None:
    """Some partitions go somewhere else, again and again; jobs are lost half-way, and nodes: also the one that has just been
    given something, and the one that has just given it away."""
    dice = random.Random(seed)
    world = begun(resource_of(text, scope=dice.choice(["auto", "ancestors"])), tmp_path)
    names = ["a", "b", "c"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        for turn in range(5):
            tick(world, dice.randrange(1, 9))
            prepare(world)
            tick(world, dice.randrange(3))
            chosen = dice.sample(sorted(world.topology.partitions), dice.randrange(1, 5))
            names.append(f"m{turn}")
            world.nodes.start(names[-1])
            target = dice.choice(names)
            move(world, dict.fromkeys(chosen, target))
            world.nodes.patient = dice.random() < 0.5
            tick(world, dice.randrange(3))
            if dice.random() < 0.5:
                lost = dice.choice([target, dice.choice(names)])
                names.remove(lost)
                world.nodes.lose(lost)
                tick(world)
                engine = world.engine
                newest = engine.desired.checkpoint
                kept = max((h.since for n, h in engine.buffers.items() if n != lost), default=0)
                assert kept <= newest, "all of them still have what it needs"
                there = names[0]
                assignment = {p: there if n == lost else n for p, n in engine.desired.assignment.items()}
                world.want(1, newest, assignment, retain=True)
            world.nodes.patient = True
            world.run(lambda e: not e.installing and not e.failed)
            over(world)
    world.run(lambda e: e.done)
    assert world.output() == expected


def test_without_output_that_was_kept_it_is_a_gap(tmp_path: Path) -> None:
    """What makes the test above able to fail: the same move without `retain`, by a scope that keeps nothing."""
    world = begun(resource_of(DIAMOND, scope="ancestors"), tmp_path)
    newest = in_the_middle(world)
    going = [p for p, n in world.engine.desired.assignment.items() if n == "b"]
    world.nodes.start("d")
    world.want(1, newest, {**world.engine.desired.assignment, **dict.fromkeys(going, "d")})
    tick(world)
    tick(world)
    assert world.engine.not_kept


def test_what_is_not_deterministic_goes_back_as_a_whole_and_tells_one_story(tmp_path: Path) -> None:
    world = World(load_text(COIN), tmp_path, "w")
    world.engine.release.ahead = 3
    world.nodes.start("a", "b", "c")
    world.want(1, 0, world.spread("a", "b"))
    world.run(lambda e: e.punctuations.newest >= 10)
    newest = prepare(world)
    tick(world)
    shown = world.output()
    world.want(2, newest, world.spread("a", "c"))
    world.nodes.lose("b")
    world.run(lambda e: e.done)
    after = world.output()
    assert {name: after[name] for name in shown} == shown
    assert len(after) == world.engine.final
    rows = [json.loads(data) for _, data in sorted(after.items()) if data]
    assert all(b["total"] == a["total"] + b["toss"] for a, b in pairwise(rows))
