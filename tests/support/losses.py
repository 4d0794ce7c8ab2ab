"""Losses at random for tests of the engine: a node in the middle of a job, or everything at once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

import pyarrow as pa
import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.sinks.files import BatchFiles, FileSink
from tests.support.pumped_engine import PumpedNodes
from tools.testbed.local_engine import World, tick

MOVED = 4
"""Jobs beside an exchange in which messages make at least the way that they make in one job of three stages."""


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


class FilesAway:
    """Sinks that are files, of which some do not answer for a while; `refused`: how often one was asked then."""

    def __init__(self, world: World, dice: random.Random, patch: pytest.MonkeyPatch) -> None:
        self._world, self._dice = world, dice
        self._away: set[str] = set()
        self.refused = 0
        for name in ("open", "store"):
            patch.setattr(FileSink, name, self._answering(getattr(FileSink, name)))

    def _answering(self, does: Callable[..., None]) -> Callable[..., None]:
        def asked(sink: FileSink, *rest: object) -> None:
            if ".".join(sink.folder.parts[-2:]) in self._away:
                self.refused += 1
                raise SinkError("no answer")
            does(sink, *rest)

        return asked

    def leave(self) -> None:
        """Half of them, or all, are away from now on, and some of what they are to show waits already."""
        outputs = sorted(self._world.topology.queries)
        self._away = set(self._dice.sample(outputs, self._dice.choice([len(outputs) // 2, len(outputs)])))
        tick(self._world, self._dice.randint(0, 2))

    def come_back(self) -> None:
        """All of them answer again."""
        self._away.clear()


def refuse_output_of(operator: str, patch: pytest.MonkeyPatch) -> None:
    """Files of what an operator gives cannot be written; those that are open stay so."""
    write = BatchFiles.write

    def refused(sink: BatchFiles, batch: int, table: pa.Table | None) -> None:
        if f"/{operator}/" in sink._files.path(""):
            raise SinkError("the store is away")
        write(sink, batch, table)

    patch.setattr(BatchFiles, "write", refused)


def lose_nodes_at_any_moment(
    world: World,
    dice: random.Random,
    back: Callable[[World], object],
    restore: Callable[[Sequence[str]], object],
    afterwards: Callable[[], object] = lambda: None,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Nodes, jobs and drivers are lost at any stage, and what was shown is not changed.

    `back`: takes everything back; `restore`: plans for what failed, on these nodes that live; `afterwards`, `before`: each
    time that it has done so, and before each loss.
    """
    fresh = fresh_nodes()
    shown: dict[str, bytes] = {}
    cuts_power(world, dice)
    for _ in range(dice.randint(3, 6)):
        tick(world, dice.randint(1, 12))
        if world.engine.done:
            break
        before()
        replaces(world, dice.sample(sorted(world.nodes.hosts), dice.choice([1, 1, 1, 2])), fresh)
        tick(world, dice.randint(0, 3))
        living = sorted(world.nodes.hosts)
        kind = dice.random()
        if kind < 0.12:
            newest = world.engine.punctuations.newest
            world.driver()
            world.engine.begin(newest)
            world.want(dice.randint(1, 3), newest, world.spread(*living), retain=True)
        elif kind < 0.24 or world.engine.not_kept:
            back(world)
        else:
            restore(living)
        now = world.output()
        assert {name: now[name] for name in shown} == shown
        shown = now
        afterwards()
    world.nodes.interrupt = lambda *_: None
    tick(world, 1)


def tick_losing(world: World, node: str, stage: int, *more: str, in_turn: bool = False) -> None:
    """One job, in which a node that is there is lost at a stage, with `more`; no node is of this name: nothing is lost.
    `in_turn`: when the stage comes to that node, and not to the first one."""
    slot = sorted(world.nodes.hosts).index(node) if in_turn else None

    def dies(_job: int, at: int, of: int) -> None:
        if at == stage and slot in (None, of) and node in world.nodes.hosts:
            world.nodes.lose(node, *more)

    world.nodes.interrupt = dies
    tick(world)
    world.nodes.interrupt = lambda *_: None


def given(world: World) -> dict[str, int]:
    """The last batch of each partition that all who read it and are at work have applied; and that is shown, where it has an
    output."""
    at, shown, found = world.engine.positions, world.output(), dict[str, int]()
    for name, partition in world.topology.partitions.items():
        last = [at[t] for d in partition.downstream for t in d.targets if t in at]
        place = f"{partition.place.operator}/{partition.place.index}/batch-"
        files = [int(file.removeprefix(place).partition(".")[0]) for file in shown if file.startswith(place)]
        found[name] = min([*last, *([max(files)] if files else [])], default=0)
    return found


def gives_more_in_one_job(world: World, promoted: Set[str], before: Mapping[str, int]) -> None:
    """From the decision that standbys are promoted to the first batch of each that nobody had `before` it is one job; one
    more where a source that they read, directly or not, is lost too and begins at its checkpoint.  More batches are
    released in these than tests release else, as such a source is far behind.  Frames of a modelled exchange need
    `MOVED` jobs for the way that messages make in one."""
    engine, each = world.engine, MOVED if isinstance(world.nodes, PumpedNodes) else 1
    jobs, behind = engine.jobs, engine.horizon - min(engine.positions.values())
    begins = {p for p in engine.installing if p not in promoted}
    later = world.topology.downstream_of(begins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", behind + 8)
        for number in (1, 2):
            tick(world, each)
            assert engine.jobs == jobs + number * each
            now = given(world)
            due = promoted if number == 2 else promoted - later
            assert {p: (now[p], before[p]) for p in due if now[p] <= before[p]} == {}
