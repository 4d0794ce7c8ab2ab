"""What every process says of itself: its version, and one state of its session with ZooKeeper."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from reprise.controller.observability.metrics.catalogue import SESSIONS
from reprise.controller.observability.metrics.metric import Sample
from reprise.controller.observability.metrics.process import own_samples, registry_of, session_of
from reprise.controller.zookeeper.session import SessionState
from reprise.spark_jobs.version import product


@pytest.mark.parametrize("session", SESSIONS)
def test_exactly_one_state_of_a_session_holds(session: str) -> None:
    build, *states = own_samples("driver", session)
    assert build == Sample("reprise_build_info", {"version": product(), "component": "driver"}, 1)
    assert {s.labels["state"]: bool(s.value) for s in states} == {
        state: state == session for state in SESSIONS
    }


def test_a_process_without_a_session_says_nothing_of_one() -> None:
    assert [sample.metric for sample in own_samples("run", None)] == ["reprise_build_info"]


@pytest.mark.parametrize("state", SessionState)
def test_every_state_of_a_client_is_one_of_the_catalogue(state: SessionState) -> None:
    assert session_of(state) in SESSIONS
    assert session_of("something new") == "lost", "what is not known to be connected is not called so"


def test_a_registry_has_the_process_beside_its_samples() -> None:
    text = generate_latest(registry_of(lambda: own_samples("driver", "connected"))).decode()
    assert 'reprise_zookeeper_session{component="driver",state="connected"} 1.0' in text
    for metric in (
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "python_gc_collections_total",
    ):
        assert f"\n{metric}" in text


def test_samples_are_asked_for_with_each_scrape() -> None:
    states = iter(("suspended", "connected"))
    registry = registry_of(lambda: own_samples("driver", next(states)))
    assert 'state="connected"} 0.0' in generate_latest(registry).decode()
    assert 'state="connected"} 1.0' in generate_latest(registry).decode()
