"""`helm test`: the topology is one that loads, and the wait ends for the right reasons."""

from __future__ import annotations

from typing import Any, cast

import pytest

from reprise.controller.image.helm_test import prove, reached, topology
from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.errors import NotFoundError, UnknownError
from reprise.spark_jobs.topology import check, expand, from_object
from reprise.spark_jobs.topology.binding import unbound


class Server:
    """Holds one object and answers as an API server does; its operator speaks at the given looks."""

    def __init__(self, statuses: list[dict[str, Any] | None]) -> None:
        self.statuses, self.body, self.deleted = statuses, None, 0

    def create(self, _path: str, body: dict[str, Any]) -> None:
        self.body = {**body, "metadata": {**body["metadata"], "generation": 1}}

    def delete(self, _path: str) -> None:
        self.body, self.deleted = None, self.deleted + 1

    def get(self, path: str) -> dict[str, Any]:
        if self.body is None:
            raise NotFoundError(404, path)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status is None:
            raise UnknownError("no answer")
        return {**self.body, "status": status}


def said(generation: int, **conditions: str) -> dict[str, Any]:
    return {
        "observedGeneration": generation,
        "conditions": [{"type": t, "status": s} for t, s in conditions.items()],
    }


def run(server: Server, until: str) -> tuple[bool, Any]:
    now = [0.0]
    return prove(
        cast(Api, server),
        "/folder",
        topology("t", "ns", ""),
        until,
        5.0,
        clock=lambda: now[0],
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
    )


@pytest.mark.parametrize("claim", ["", "shared"])
def test_the_topology_is_one_that_runs(claim: str) -> None:
    resource = from_object(topology("rec-test", "ns", claim))
    check(resource)
    assert list(unbound(resource)) == []
    assert len(expand(resource).queries) == 2
    assert bool(resource.kubernetes.volumes) == bool(claim) == bool(resource.sink_location)


def test_it_waits_for_the_operator_through_silence_and_old_news() -> None:
    server = Server([{}, None, said(0, Valid="True"), said(1, Valid="Unknown"), said(1, Valid="True")])
    done, last = run(server, "accepted")
    assert (done, last) == (True, {"Valid": "True"})
    assert server.body is None, "it removes what it has made"


def test_it_gives_up_in_time_and_says_what_it_saw() -> None:
    server = Server([said(1, Valid="True", Ready="False")])
    assert run(server, "ready") == (False, {"Valid": "True", "Ready": "False"})
    assert server.body is None and server.deleted == 2


def test_a_status_of_an_older_spec_proves_nothing() -> None:
    found = {"metadata": {"generation": 2}, "status": said(1, Ready="True")}
    assert not reached(found, "ready") and reached({**found, "metadata": {"generation": 1}}, "ready")
