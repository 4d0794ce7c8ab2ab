"""The walks of docs/architecture.md are walked: the modules that they name run, and they stay short."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from reprise.scheduler.simulation.run import Change, run_simulation
from reprise.spark_jobs.topology import load_text
from tests.unit.scheduler.test_simulate import BURST, POLICY, RUNNING
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World

PAGE = Path("docs/architecture.md").read_text()
LONGEST = 40
WITH_SPARK_OR_ZOOKEEPER = {
    "spark_jobs/engine/chain.py",
    "spark_jobs/node/shim.py",
    "spark_jobs/node/host_process.py",
}
"""What a process of its own, or a job of Spark, calls: tests on real parts run these."""


def walk(title: str) -> list[str]:
    """Modules that a section names, each once, in its order."""
    section = PAGE.split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    return list(
        dict.fromkeys(re.findall(r"`((?:algorithms|controller|scheduler|spark_jobs)/[\w/]+\.py)`", section))
    )


LOSS = walk("The walk of a node loss")
BATCH = walk("The walk of a batch")


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Modules whose functions ran while two of four nodes were lost and made good, in scheduler and data plane."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        _, inside, rest = frame.f_code.co_filename.partition("/reprise/")
        if inside and event == "call" and frame.f_code.co_name != "<module>":
            found.add(rest)

    def recorded(work: Callable[[], object]) -> None:
        before = sys.getprofile()
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(before)
            threading.setprofile(None)

    recorded(lambda: run_simulation(RUNNING, POLICY, [BURST, Change(30.0, arrive=2)]))
    world = World(load_text(DIAMOND), tmp_path_factory.mktemp("walk"), "w")
    recorded(lambda: _restore_after_a_loss(world))
    return found


def _restore_after_a_loss(world: World) -> None:
    world.nodes.start("a", "b", "c", "d")
    world.want(1, 0, world.spread("a", "b", "c", "d"))
    world.run(lambda engine: engine.punctuations.newest >= 10)
    newest = world.engine.punctuations.newest
    world.nodes.lose("c", "d")
    world.want(2, newest, world.spread("a", "b"), retain=True)
    world.run(lambda engine: engine.punctuations.newest > newest)


@pytest.mark.parametrize(("title", "modules"), [("node loss", LOSS), ("batch", BATCH)])
def test_a_walk_is_short_and_its_modules_are_there(title: str, modules: list[str]) -> None:
    assert 15 < len(modules) < LONGEST, f"{title}: {len(modules)} modules"
    assert [module for module in modules if not Path(module).is_file()] == []


@pytest.mark.parametrize(("title", "modules"), [("node loss", LOSS), ("batch", BATCH)])
def test_a_walk_names_what_runs(title: str, modules: list[str], executed: set[str]) -> None:
    here = [m for m in modules if m.startswith(("scheduler/", "algorithms/", "spark_jobs/"))]
    assert [m for m in here if m not in executed | WITH_SPARK_OR_ZOOKEEPER] == [], title
