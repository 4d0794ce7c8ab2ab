"""How a driver begins: a store that is away keeps it waiting, and only that."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.analysis.explain import explain
from reprise.controller.crd.conditions import Truth
from reprise.controller.driver import process
from reprise.controller.driver.channel import Channel
from reprise.controller.driver.process import Driver, DriverConfig
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.operator.status.topology_status import condition_updates
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer, MemorySession
from reprise.controller.status import document
from reprise.controller.status.query_state import Status, run_state
from reprise.controller.status.records import observation as from_records
from reprise.controller.status.records import records
from reprise.controller.zookeeper import observer as observation
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import parse_waits
from reprise.spark_jobs.errors import DamagedError, StoreError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claims
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.revision import RevisionError, Revisions, revision_of
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import load_text, override
from reprise.spark_jobs.topology.resource import SparkSettings
from tests.support.local_driver import ROOT, world_of
from tests.support.oncall import TOPOLOGY, resource, steady
from tests.unit.controller.driver.test_upgrade import NEW, OLD
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND


class Starting(Driver):
    """Without Spark, and with ZooKeeper in memory; `pauses` in seconds are noted and not waited for."""

    def __init__(self, folder: Path, tree: MemoryServer) -> None:
        config = DriverConfig("zk", ROOT, "local", str(folder / "out"), str(folder / "cp"), None, "", "h", "")
        super().__init__(load_text(DIAMOND), config)
        self.channel = Channel("", ROOT, session=MemorySession(tree))
        self.pauses: list[float] = []
        self.stop.wait = self._notes  # type: ignore[method-assign]

    def _notes(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return self.stop.is_set()


def away(patch: pytest.MonkeyPatch, method: str, about: str, times: int) -> None:
    """A method of the store raises so many times, for names with `about`."""
    real, left = getattr(Files, method), [times]

    def raises(self: Files, relative: str = "", *given: Any) -> Any:
        if about in relative and left[0]:
            left[0] -= 1
            raise StoreError(f"cannot {method} {relative}: the store is away")
        return real(self, relative, *given)

    patch.setattr(Files, method, raises)


@pytest.mark.parametrize(
    ("method", "about"),
    [
        ("names", "epochs"),
        ("create", ".checkpoints.json"),
        ("read", "stream.json"),
        ("names", "ranges"),
        ("read", "clock.json"),
        ("replace", "revisions/"),
    ],
)
def test_a_store_that_is_away_at_the_start_is_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    about: str,
) -> None:
    away(monkeypatch, method, about, 8)
    driver = Starting(tmp_path, MemoryServer())
    with caplog.at_level(logging.ERROR):
        found = driver._started()
    assert found is not None
    assert driver.pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert caplog.text.count("waits for its checkpoint store") == 1, "said once"
    assert found[0].epoch == max(claims(Files(str(tmp_path / "cp"))))


def test_spark_is_told_memory_in_whole_mebibytes_and_the_place_stands_above_the_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        process, "SparkContext", lambda conf: given.append(conf) or SimpleNamespace(setLogLevel=given.append)
    )
    driver = Starting(tmp_path, MemoryServer())
    own = {"spark.a": "topology", "spark.b": "topology"}
    driver.resource = replace(driver.resource, spark=SparkSettings(1_000_000_000, own))
    driver.config = replace(driver.config, conf={"spark.b": "place"})
    driver._spark({})
    conf = dict(given[0].getAll())
    assert conf["spark.executor.memory"] == "953m"
    assert (conf["spark.a"], conf["spark.b"]) == ("topology", "place")
    assert "spark.executorEnv.PYTHONPATH" not in conf
    driver.config = replace(driver.config, python_path="/code")
    driver._spark({})
    assert dict(given[2].getAll())["spark.executorEnv.PYTHONPATH"] == "/code"


def test_checkpoints_are_taken_as_the_topology_says(tmp_path: Path) -> None:
    driver = Starting(tmp_path, MemoryServer())
    found = driver._started()
    assert found is not None
    assert found[0].punctuations.policy == driver.resource.checkpoint


def test_what_a_driver_waits_for_is_told_to_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has begun; the report of the driver before it, by which all is well, is not believed meanwhile."""
    tree, path = MemoryServer(), f"{ROOT}/{paths.WAITS}"
    away(monkeypatch, "names", "epochs", 3)
    driver, seen = Starting(tmp_path, tree), steady()
    shown: list[Observation] = []

    def meanwhile(_: float | None = None) -> bool:
        problem = parse_waits(tree.records[path][0]).problem
        shown.append(replace(seen, waits=problem, problems=observation._problems(None, problem)))
        return False

    driver.stop.wait = meanwhile  # type: ignore[method-assign]
    assert driver._started() is not None
    assert path not in tree.records, "it waits no more"
    assert len(shown) == 3
    text = "the driver waits for its checkpoint store: cannot names epochs: the store is away"
    for look in shown:
        found = document(TOPOLOGY, look)
        assert found.problems[-1] == text
        assert {(q.state, q.reason) for q in found.queries.items} == {(Status.WAITING, text)}
        assert explain(found, "count.1").waits_for == text
        assert from_records(json.dumps(records(look)).encode(), "it").waits == text
        state = run_state(TOPOLOGY, look)
        for began in (look, replace(look, progress=None, desired=None)):
            claims = {
                c.type: c
                for c in condition_updates(
                    TopologyState(1, resource(), state=replace(state, observation=began))
                )
            }
            assert (claims["Degraded"].reason, claims["Degraded"].message) == ("DriverWaits", text)
            assert claims["Ready"].truth is Truth.FALSE
        assert claims["Ready"].message == text


def test_who_waits_beside_a_later_driver_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = MemoryServer()
    away(monkeypatch, "names", "epochs", 1)
    driver = Starting(tmp_path, tree)
    later = Channel("", ROOT, session=MemorySession(tree))
    claim = driver.channel.waits_for

    def too_late(problem: str) -> None:
        later.next_epoch()
        claim(problem)

    monkeypatch.setattr(driver.channel, "waits_for", too_late)
    assert driver._started() is None
    assert f"{ROOT}/{paths.WAITS}" not in tree.records


def test_one_that_waits_for_its_store_ends_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away(monkeypatch, "names", "epochs", 1000)
    driver = Starting(tmp_path, MemoryServer())

    def told(_: float | None = None) -> bool:
        driver.stop.set()
        return True

    driver.stop.wait = told  # type: ignore[method-assign]
    assert driver._started() is None


@pytest.mark.parametrize(("method", "about"), [("names", "epochs"), ("read", "stream.json")])
def test_one_that_waited_does_not_come_back_before_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, about: str
) -> None:
    """It is given up while its store is away; when that is back it must not claim an epoch after its successor."""
    tree = MemoryServer()
    old, new = Starting(tmp_path, tree), Starting(tmp_path, tree)
    away(monkeypatch, method, about, 1)
    claims_nothing_after(old, new, tmp_path)


def claims_nothing_after(
    old: Starting, new: Starting, folder: Path, afterwards: Callable[[], object] = lambda: None
) -> None:
    """The new one starts, and then `afterwards`, while the old one waits for its store; the old one ends."""
    found: list[Any] = []

    def meanwhile(_: float | None = None) -> bool:
        found.append(new._started())
        afterwards()
        return False

    old.stop.wait = meanwhile  # type: ignore[method-assign]
    assert old._started() is None
    (later,) = found
    assert claims(Files(str(folder / "cp")))[-1] == later[0].epoch
    assert not new.channel.superseded


def test_nor_before_it_has_heard_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cut off from ZooKeeper meanwhile, or the word of its watch is on its way; the claims tell of a later one."""
    tree = MemoryServer()
    old, new = Starting(tmp_path, tree), Starting(tmp_path, tree)
    away(monkeypatch, "names", "epochs", 1)
    claims_nothing_after(old, new, tmp_path, lambda: monkeypatch.setattr(old.channel, "_epoch_stale", False))


def test_what_a_driver_begins_with_has_its_epoch_in_its_name(tmp_path: Path) -> None:
    """Else what an earlier driver, frozen at its beginning, writes late would take its place."""
    tree = MemoryServer()
    first = Starting(tmp_path, tree)._started()
    assert first is not None
    first[0].release.start(1000.0)
    second = Starting(tmp_path, tree)._started()
    assert second is not None
    assert second[0].epoch > first[0].epoch
    for folder in ("clock", "revisions"):
        assert Files(str(tmp_path / "cp")).names(folder) == [f"{second[0].epoch:08d}.json"], folder


def test_a_driver_waits_where_a_checkpoint_is_complete_and_its_batches_are_not_on_record(
    tmp_path: Path,
) -> None:
    CheckpointStore(str(tmp_path / "cp")).complete(Manifest.of_round(5, {}, {}))
    (tmp_path / "cp" / "stream.json").write_text('{"began": 1.0}')
    driver = Starting(tmp_path, MemoryServer())
    with pytest.raises(StoreError, match=r"checkpoint 5 is complete, and ranges in .* up to 0 alone"):
        driver._make_engine()
    assert not list((tmp_path / "cp").glob("ranges/*"))


def test_what_is_damaged_or_refused_is_not_tried_again(tmp_path: Path) -> None:
    tree = MemoryServer()
    first = Starting(tmp_path, tree)
    assert first._started() is not None
    (tmp_path / "cp" / "stream.json").write_text("no name")
    driver = Starting(tmp_path, tree)
    with pytest.raises(DamagedError):
        driver._started()
    (tmp_path / "cp" / "stream.json").write_text('{"began": 1.0}')
    found = Starting(tmp_path, tree)._started()
    assert found is not None
    found[0].ledger.reach(5)
    driver = Starting(tmp_path, tree)
    driver.resource = NEW
    with pytest.raises(RevisionError):
        driver._started()
    assert driver.pauses == []


def test_a_driver_whose_store_lists_late_takes_one_number_and_writes_one_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, real, late = MemoryServer(), Files.names, [12]

    def names(self: Files, folder: str = "") -> list[str]:
        if folder != "epochs":
            return real(self, folder)
        late[0] -= 1
        return [] if late[0] >= 0 else real(self, folder)

    monkeypatch.setattr(Files, "names", names)
    driver = Starting(tmp_path, tree)
    found = driver._started()
    assert found is not None and len(driver.pauses) > 1
    assert found[0].epoch == 1 and claims(Files(str(tmp_path / "cp"))) == [1]
    assert driver.channel.next_epoch() == 2


def of_other_code(folder: Path) -> Path:
    """The checkpoint location of a stream in its middle; batches after its newest checkpoint are on record."""
    world = world_of(OLD, folder)
    Revisions(str(world.checkpoints), revision_of(OLD), world.fence).begin(0, 0, False, tuple)
    world.want(1, 0, world.spread("a", "b"))
    world.engine.release.ahead = 3
    world.run(lambda e: e.punctuations.newest >= 20)
    assert world.engine.ledger.written > world.engine.punctuations.newest
    return world.checkpoints


def test_that_other_code_makes_batches_again_is_said_though_it_takes_two_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = of_other_code(tmp_path)
    away(monkeypatch, "names", "skipped", 1)
    driver = Starting(tmp_path, MemoryServer())
    driver.resource = override(NEW, {"upgrade": "replay"})
    driver.config = replace(driver.config, checkpoints=str(location))
    found = driver._started()
    assert found is not None and len(driver.pauses) == 1
    assert any("are made again by changed code" in said for said in found[0].problems)


def test_a_ledger_that_is_listed_late_lets_no_other_code_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First blocks are gone, so nothing is found by name either: a driver that had put its revision on record before it
    noticed would find its own the next time, and make what was shown again by other code."""
    location = of_other_code(tmp_path)
    (location / "ranges" / "0000000001.json").unlink()
    (location / "ranges" / "0000000016.given-up").touch()
    real, late = Files.names, [2]

    def names(self: Files, folder: str = "") -> list[str]:
        if folder == "ranges" and late[0]:
            late[0] -= 1
            return []
        return real(self, folder)

    monkeypatch.setattr(Files, "names", names)
    driver = Starting(tmp_path, MemoryServer())
    driver.resource, driver.config = NEW, replace(driver.config, checkpoints=str(location))
    with pytest.raises(RevisionError):
        driver._started()
    assert not late[0] and len(driver.pauses) == 1
