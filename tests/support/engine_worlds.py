"""Worlds of the engine that are at work, and what tests of it do again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from reprise.spark_jobs.topology import StreamTopology, load_text
from tools.testbed.local_engine import World


def begun(
    resource: StreamTopology | str,
    folder: Path,
    nodes: Sequence[str] = "abc",
    name: str = "w",
    ahead: int | None = None,
) -> World:
    """A topology, or its text, whose partitions are dealt out over nodes.  `ahead`: so many batches are released at once."""
    world = World(load_text(resource) if isinstance(resource, str) else resource, folder, name)
    if ahead is not None:
        world.engine.release.ahead = ahead
    world.nodes.start(*nodes)
    world.want(1, 0, world.spread(*nodes))
    return world


def placed(
    resource: StreamTopology,
    folder: Path,
    at: Mapping[str, str],
    standbys: Mapping[str, str] | None = None,
    nodes: Sequence[str] = "abcd",
) -> World:
    """A topology whose partitions, and their standbys, are on these nodes."""
    world = World(resource, folder, "w")
    world.engine.begin(0)
    world.nodes.start(*nodes)
    world.want(1, 0, at, standbys=standbys)
    return world


def fault_free(world: World) -> dict[str, bytes]:
    """The output of a world to which nothing happens."""
    world.run(lambda e: e.done)
    output = world.output()
    assert world.engine.final is not None
    assert len(output) == world.engine.final * len(world.topology.queries)
    return output


def all_anew(world: World, generation: int, *nodes: str) -> None:
    """All nodes are lost with the driver; another one goes on from the newest checkpoint, on other nodes."""
    newest = world.engine.punctuations.newest
    world.nodes.lose(*world.nodes.hosts)
    world.nodes.start(*nodes)
    world.driver()
    world.engine.begin(newest)
    world.want(generation, newest, world.spread(*nodes), retain=True)


def goes_back(
    world: World, standbys: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {}
) -> None:
    """Everything goes back to the newest checkpoint.  `standbys`: where they are then, by where partitions are."""
    at = world.spread(*sorted(world.nodes.living()))
    generation, newest = world.engine.desired.generation + 1, world.engine.punctuations.newest
    world.want(generation, newest, at, retain=True, standbys=standbys(at))


def to_its_end(world: World, back: Callable[[World], object] = goes_back) -> None:
    """To the end of the stream; where output is missing that nobody kept everything goes back, as a coordinator decides."""
    for _ in range(40):
        world.run(lambda e: e.done or bool(e.not_kept))
        if world.engine.done:
            return
        back(world)
    raise AssertionError("it goes back again and again")


def place(world: World, nodes: Sequence[str], without: Sequence[str] = ()) -> dict[str, str]:
    """Where everything is when what is not at work goes to these nodes, and nobody else moves."""
    engine, living = world.engine, world.nodes.living()
    at = {p: n for p, n in engine.desired.assignment.items() if n in living and p in engine.positions}
    others = [p for p in world.topology.order if p not in at and p not in without]
    return at | {p: nodes[i % len(nodes)] for i, p in enumerate(others)}


def still_shown(world: World, shown: Mapping[str, bytes]) -> dict[str, bytes]:
    """What is shown now, of which nothing that was shown differs."""
    now = world.output()
    assert {name: now[name] for name in shown} == shown
    return now
