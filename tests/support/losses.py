"""Losses at random for tests of the engine: a node in the middle of a job, or everything at once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from reprise.spark_jobs.engine.chain import ChainError
from tools.testbed.local_engine import World, tick


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


def fresh_nodes() -> Iterator[str]:
    """Names that no node had before."""
    return (f"n{number}" for number in itertools.count())


def cuts_power(world: World, dice: random.Random) -> None:
    """From now on two in a hundred tasks of jobs fail, at any stage."""

    def fails(_job: int, _stage: int, _slot: int) -> None:
        if dice.random() < 0.02:
            raise ChainError("power cut")

    world.nodes.interrupt = fails


def replaces(world: World, lost: Sequence[str], fresh: Iterator[str]) -> None:
    """These nodes are lost, and as many others come."""
    world.nodes.lose(*lost)
    world.nodes.start(*(next(fresh) for _ in lost))


def lose_nodes_at_any_moment(
    world: World,
    dice: random.Random,
    back: Callable[[World], object],
    restore: Callable[[Sequence[str]], object],
    afterwards: Callable[[], object] = lambda: None,
) -> None:
    """Nodes, jobs and drivers are lost at any stage, and what was shown is not changed.

    `back`: takes everything back; `restore`: plans for what failed, on these nodes that live; `afterwards`: each time.
    """
    fresh = fresh_nodes()
    shown: dict[str, bytes] = {}
    cuts_power(world, dice)
    for _ in range(dice.randint(3, 6)):
        tick(world, dice.randint(1, 12))
        if world.engine.done:
            break
        replaces(world, dice.sample(sorted(world.nodes.hosts), dice.choice([1, 1, 1, 2])), fresh)
        tick(world, dice.randint(0, 3))
        living = sorted(world.nodes.hosts)
        kind = dice.random()
        if kind < 0.12:
            newest = world.engine.punctuations.newest
            world.driver()
            world.engine.begin(newest)
            world.want(dice.randint(1, 3), newest, world.spread(*living), retain=True)
        elif kind < 0.24 or world.engine.gaps:
            back(world)
        else:
            restore(living)
        now = world.output()
        assert {name: now[name] for name in shown} == shown
        shown = now
        afterwards()
    world.nodes.interrupt = lambda *_: None
    tick(world, 1)
