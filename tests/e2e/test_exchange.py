"""The transport of a continuous exchange on real Spark, whose nodes have a secret (`spark.authenticate`).

One cluster and one driver run all steps in order (`tools/testbed/exchange_lab.py`); processes stand for the partition
hosts.  How soon something comes is printed, and is no verdict but for the loss of a node, which is to be seen in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from tools.testbed.exchange_lab import run

pytestmark = [pytest.mark.slow, pytest.mark.wide]
STEPS = (
    "probed", "late_hosts", "small", "mixed", "bulk", "beside_a_job", "beside_a_chain", "make_before_break",
    "slots_are_let_go", "one_does_not_read", "host_dies", "objects", "junk", "executor_dies",
)  # fmt: skip
SECONDS = 60.0
"""A killed executor is seen within half a second on an idle machine; a timeout of Spark's takes two minutes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    config = ClusterConfig(nodes=3, session_timeout_ms=60_000, start_timeout_s=300.0)
    with EmbeddedCluster(config) as started:
        yield started


@pytest.fixture(scope="module")
def found(cluster: EmbeddedCluster) -> dict[str, dict[str, Any]]:
    """What each step has found."""
    steps = run(cluster, STEPS)
    for step in steps:
        print(step)
    return {step["step"]: step for step in steps}


def assert_exact(arrived: dict[str, Any], count: int) -> None:
    """All that was sent came, once and in order, link by link."""
    assert (arrived["missing"], arrived["wrong"], arrived["count"]) == (0, [], count), arrived


def test_a_probe_passes_here_and_says_why_where_it_cannot(found: dict[str, dict[str, Any]]) -> None:
    """On a cluster with `spark.authenticate`, which is no reason to refuse."""
    probed = found["probed"]
    assert probed["authenticated"] == "true"
    assert (probed["refusal"], probed["probe"], probed["again"]) == (None, None, None)
    assert probed["nowhere"] == "a tiny exchange over 4 nodes failed: there is no executor at 127.99.99.99"


def test_relays_wait_for_hosts_that_come_later(found: dict[str, dict[str, Any]]) -> None:
    step = found["late_hosts"]
    assert (step["failure"], step["before"], step["stands"]) == (None, False, True)


@pytest.mark.parametrize(
    ("step", "count"),
    [("small", 1800), ("mixed", 162), ("bulk", 1800), ("beside_a_job", 3600), ("beside_a_chain", 3600)],
)
def test_messages_from_all_to_all_arrive_once_and_in_order(
    found: dict[str, dict[str, Any]], step: str, count: int
) -> None:
    assert_exact(found[step], count)


def test_ordinary_jobs_run_beside_it(found: dict[str, dict[str, Any]]) -> None:
    assert found["beside_a_job"]["jobs"] >= 1
    assert found["beside_a_chain"]["jobs"] >= 1


def test_a_host_that_does_not_read_holds_up_nobody_else(found: dict[str, dict[str, Any]]) -> None:
    """With no more on its way to it than a host may have unconfirmed."""
    step = found["one_does_not_read"]
    assert_exact(step["meanwhile"], 2 * 200)
    assert_exact(step["at_last"], 2 * 200 + 2 * step["each"])


def test_junk_on_its_ports_is_no_frame(found: dict[str, dict[str, Any]]) -> None:
    """It may end the exchange, which is why network policies confine them."""
    assert found["junk"]["ports"] >= 2
    assert found["junk"]["wrong"] == []


def test_the_next_exchange_starts_beside_this_one(found: dict[str, dict[str, Any]]) -> None:
    """And a host that changes over first does not end it for the others."""
    step = found["make_before_break"]
    assert_exact(step["before"], 400)
    assert_exact(step["after"], 300)
    assert (step["while_one_has_changed_over"], step["goes_on"]) == (None, None)
    assert step["stopped"] == "it was stopped"


def test_a_cancelled_exchange_lets_go_of_its_slots(found: dict[str, dict[str, Any]]) -> None:
    """Each of three needs six, and nine are free beside the one that runs."""
    assert found["slots_are_let_go"]["failures"] == [None, None, None]
    assert found["slots_are_let_go"]["ended"] == "it was stopped"


def test_a_host_that_dies_alone_ends_the_exchange_at_once(found: dict[str, dict[str, Any]]) -> None:
    """Its own relay reports it, or those of others that their connection to it ended, or that their host has closed the
    other relay's since: whoever comes first."""
    step = found["host_dies"]
    reasons = ("the partition host of slot ", "shuffle writer", "a connection between relays broke")
    assert any(reason in step["failure"] for reason in reasons), step["failure"]
    assert step["seconds"] < SECONDS
    assert_exact(step["next"], 120)


def test_a_killed_executor_ends_the_exchange_in_seconds_and_the_survivors_begin_the_next(
    found: dict[str, dict[str, Any]],
) -> None:
    step = found["executor_dies"]
    assert_exact(step["before"], 120)
    assert step["failure"]
    assert step["seconds"] < SECONDS
    assert step["living"] == [True, True]
    assert_exact(step["next"], 40)


def test_no_object_is_read_from_the_network(found: dict[str, dict[str, Any]]) -> None:
    """What reads records takes a serialised object for a length that no record has."""
    assert "a record of -1393754107 bytes" in found["objects"]["object"]
