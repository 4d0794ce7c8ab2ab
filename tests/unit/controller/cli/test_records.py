"""`reprise records` and `reprise pause` with a ZooKeeper that stops answering: what is said is what is known."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from kazoo.exceptions import ConnectionLoss

from reprise.controller.cli import main
from reprise.controller.cli import target_local as local
from reprise.controller.cli.exits import NotRunningError
from reprise.controller.simulated_world.memory_zookeeper import MemoryAnswer, MemoryClient, MemoryServer
from reprise.controller.zookeeper import client as clients
from reprise.controller.zookeeper import mirror
from reprise.controller.zookeeper.session import ZooKeeperSession

ROOT = "/reprise/default/t"
COPY = mirror.Copy(
    ROOT, 0.0, {"checkpoints/40": "{}", "incidents/inc-000001": "{}", "plans/inc-000001-p1": "{}"}
)


class Losing(MemoryClient):
    """A session that loses the connection with the n-th request of a kind: before it is carried out, or the answer alone."""

    lose: tuple[str, int, bool] = ("", 0, False)

    def _answer(self, verb: str, path: str, give: Callable[[], Any]) -> MemoryAnswer:
        kind, number, done = self.lose
        if verb == kind and sum(asked == kind for asked, _ in self.asked) == number - 1:
            self.asked.append((verb, path))
            if done:
                give()
            return MemoryAnswer(error=ConnectionLoss())
        return super()._answer(verb, path, give)


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Losing:
    session = Losing(MemoryServer(), 5)

    def make(*_: Any) -> ZooKeeperSession:
        return ZooKeeperSession(cast(Any, session))

    monkeypatch.setattr(clients, "make_client", make)
    return session


def load(file: Path) -> Result:
    mirror.save(COPY, str(file))
    return CliRunner().invoke(main, ["records", "load", "--zk", "z:1", "--root", ROOT, "--from", str(file)])


@pytest.mark.parametrize("done", [True, False])
def test_a_copy_whose_answer_is_lost_is_not_called_put_back_nor_not(
    losing: Losing, tmp_path: Path, done: bool
) -> None:
    losing.lose = ("commit", 1, done)
    result = load(tmp_path / "t.json")
    assert result.exit_code == 1 and "does not answer" not in result.output
    assert "whether the records were put back is not known" in result.output
    assert (f"{ROOT}/checkpoints/40" in losing.server.znodes) is done
    again = load(tmp_path / "t.json")
    assert ("there are records already" if done else "3 records") in again.output


def test_a_copy_that_is_interrupted_after_what_is_needed_says_what_is_missing(
    losing: Losing, tmp_path: Path
) -> None:
    losing.lose = ("commit", 3, False)
    result = load(tmp_path / "t.json")
    assert result.exit_code == 1
    assert "put back that the topology needs, but not every closed incident and plan" in result.output
    assert f"{ROOT}/checkpoints/40" in losing.server.znodes


def test_who_stops_answering_before_anything_is_written_has_stopped(losing: Losing, tmp_path: Path) -> None:
    losing.lose = ("exists", 1, False)
    result = load(tmp_path / "t.json")
    assert result.exit_code == 4 and "ZooKeeper at z:1 has stopped answering" in result.output


def test_a_copy_that_is_made_again_and_again_outlives_a_connection(
    losing: Losing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is refused as a mistake; of the others the one before stands, and the next turn makes another."""
    mirror.restore(ZooKeeperSession(cast(Any, losing)), ROOT, COPY)
    losing.asked.clear()
    one = [
        "records",
        "save",
        "--zk",
        "z:1",
        "--root",
        ROOT,
        "--to",
        str(tmp_path / "t.json"),
        "--every",
        "1s",
    ]
    turns: list[float | None] = []
    waits = threading.Event.wait

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        if (
            threading.current_thread() is not threading.main_thread()
        ):  # of another test, as partition hosts have
            return waits(event, timeout)
        turns.append(timeout)
        if len(turns) == 3:
            raise KeyboardInterrupt
        losing.asked.clear()
        losing.lose = ("get", 1, False) if len(turns) == 1 else ("", 0, False)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", wait)
        result = CliRunner().invoke(main, one)
    assert turns == [1.0, 1.0, 1.0]
    assert result.output.count(f"3 records of {ROOT}") == 2
    assert result.output.count("not copied, the copy before stands") == 1
    losing.asked.clear()
    losing.lose = ("get", 1, False)
    assert CliRunner().invoke(main, one).exit_code == 4


@pytest.mark.parametrize("done", [True, False])
def test_a_pause_whose_answer_is_lost_is_not_called_unwritten(
    losing: Losing, done: bool, tmp_path: Path
) -> None:
    losing.lose = ("set", 1, done)
    ZooKeeperSession(cast(Any, losing)).create(f"{ROOT}/commands/paused", b"false", makepath=True)
    target = local.ZooKeeperTarget.__new__(local.ZooKeeperTarget)
    target.hosts, target.root, target.access = "z:1", ROOT, {}
    with pytest.raises(NotRunningError, match="is not known, ask again"):
        target.pause(True)
    assert (losing.server.znodes[f"{ROOT}/commands/paused"].data == b"true") is done
