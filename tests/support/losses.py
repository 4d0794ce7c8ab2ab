"""Losses at random for tests of the engine: a node in the middle of a job, or everything at once."""

from __future__ import annotations

import random
from collections.abc import Callable

from reprise.spark_jobs.engine.chain import ChainError
from tests.support.local_engine import World, tick


def dies(world: World, node: str, job: int, stage: int) -> Callable[[int, int, int], None]:
    """What `LocalNodes.interrupt` is for a node that is lost at a stage of a job, or as soon after as it is asked."""

    def interrupt(now: int, at: int, _slot: int) -> None:
        if node in world.nodes.hosts and (now, at) >= (job, stage):
            world.nodes.lose(node)
            raise ChainError(f"{node} is gone")

    return interrupt


def lose_at_any_stage(world: World, dice: random.Random) -> None:
    """One node is lost in one of the next jobs, or after them."""
    node = dice.choice(sorted(world.nodes.hosts))
    world.nodes.interrupt = dies(world, node, world.engine.jobs + dice.randint(1, 4), dice.randint(0, 2))
    for _ in range(8):
        tick(world)
        if node not in world.nodes.hosts:
            break
    world.nodes.interrupt = lambda *_: None
    world.nodes.hosts.pop(node, None)


def lose_a_node_or_everything(world: World, dice: random.Random) -> None:
    """One node is lost, and the engine notices; or all are, with the driver, and another one has begun."""
    if dice.random() < 0.5:
        world.nodes.lose(dice.choice(sorted(world.nodes.hosts)))
        tick(world)
    else:
        world.nodes.lose(*world.nodes.hosts)
        world.driver()
        world.engine.begin(world.engine.punctuations.newest)
