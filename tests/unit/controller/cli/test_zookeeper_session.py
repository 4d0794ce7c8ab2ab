"""A session for the length of one command: what is said where nobody answers, answers no longer, or refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from reprise.controller.cli import zookeeper_session as module
from reprise.controller.cli.exits import NotRunningError
from reprise.controller.cli.zookeeper_session import CONNECT_S, zookeeper_session
from reprise.controller.zookeeper.errors import ClientError, NoAuthError, SessionError

Call = tuple[str, float, Mapping[str, str], float]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call | str]:
    """What was connected to, and that it was closed."""
    found: list[Call | str] = []

    @contextmanager
    def connected(hosts: str, session_s: float, access: Mapping[str, str], start_s: float) -> Iterator[str]:
        found.append((hosts, session_s, access, start_s))
        if hosts == "away":
            raise SessionError("no server")
        try:
            yield "session"
        finally:
            found.append("closed")

    monkeypatch.setattr(module, "connected", connected)
    return found


def refused(error: Exception) -> str:
    with pytest.raises(NotRunningError) as found, zookeeper_session("z:1", {}):
        raise error
    return str(found.value)


def test_it_is_there_for_the_command_and_closed_after_it(calls: list[Call | str]) -> None:
    with zookeeper_session("z:1", {"A": "b"}) as session:
        assert session == "session"  # type: ignore[comparison-overlap]
        assert calls == [("z:1", CONNECT_S, {"A": "b"}, CONNECT_S)]
    assert calls[-1] == "closed"


def test_nobody_answers(calls: list[Call | str]) -> None:
    with (
        pytest.raises(NotRunningError, match=r"^ZooKeeper at away does not answer$"),
        zookeeper_session("away", {}),
    ):
        raise AssertionError("it has not begun")


def test_one_that_stops_answering_may_have_done_what_was_asked(calls: list[Call | str]) -> None:
    said = refused(SessionError("expired"))
    assert said.startswith(
        "ZooKeeper at z:1 has stopped answering; whether what was asked last is done is not known"
    )
    assert calls[-1] == "closed"


def test_who_may_not_is_told_by_what_to_prove_oneself(calls: list[Call | str]) -> None:
    assert refused(NoAuthError("x")).startswith("ZooKeeper at z:1 does not let this process do that; ")
    assert module.AUTH in refused(NoAuthError("x"))


def test_what_it_refuses_is_said(calls: list[Call | str]) -> None:
    assert refused(ClientError("too large")) == "ZooKeeper at z:1 refuses: ClientError('too large')"


def test_other_errors_are_not_taken_for_its_own(calls: list[Call | str]) -> None:
    with pytest.raises(ZeroDivisionError), zookeeper_session("z:1", {}):
        raise ZeroDivisionError
    assert calls[-1] == "closed"
