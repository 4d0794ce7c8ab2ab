"""What a topology writes to ZooKeeper stays below what a server takes, and what would not is refused before it is sent."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import pytest

from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.store import Reading, Store
from reprise.controller.coordinator.transaction import Versions, operations
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper import znode
from reprise.controller.zookeeper.errors import RecordError, TooLargeError
from reprise.controller.zookeeper.process_records import ERROR, Leader
from reprise.controller.zookeeper.records import encode_desired, parse_desired
from reprise.controller.zookeeper.session import SessionState
from reprise.scheduler import AddPlan, Decision, Event, Outcome, Snapshot, WriteDesired
from reprise.scheduler.incident import EventName
from tests.support.record_samples import DESIRED, INCIDENT, PLAN, POLICY, TOPOLOGY
from tests.support.recorded_sizes import Sizes, driver_restarted, resource


class Client:
    """Takes transactions, and no answer is ever asked of it."""

    state = SessionState.CONNECTED
    sent = 0

    def transaction(self) -> Sizes:
        return Sizes(self)

    def call(self) -> None:
        self.sent += 1


def store(client: Client) -> Store:
    return Store(client, "/reprise/default/pair", TOPOLOGY, clock=lambda: 10.0)


def act(*steps: Any) -> Decision:
    return Decision(Outcome.ACT, "test", "because", steps)


READING = Reading(Snapshot(10.0, TOPOLOGY), Versions())


@pytest.mark.parametrize("strategy", ["incremental", "operator-centric", "blocking"])
def test_a_driver_restart_of_a_thousand_partitions_fits_one_transaction(strategy: str) -> None:
    """A hundred queries that each need nearly everything: written down query by query that was 1.4 MiB."""
    spec = resource(stages=9, parallelism=100, nodes=20, outputs=100)
    policy = replace(policy_of(spec, 1.0, 30.0), strategy=type(POLICY.strategy)(strategy))
    decision, plan = driver_restarted(view_of(spec), policy)
    assert len(plan.added) == 1000
    assert len(plan.candidates) == 100
    transaction = Sizes()
    for operation in operations("/reprise/default/big", Versions(1, 1), decision):
        operation(transaction)
    print(f"{strategy}: transaction with the plan: {transaction.bytes} bytes")
    assert 0 < transaction.bytes < znode.LIMIT_BYTES / 10


def test_what_is_too_large_is_refused_before_it_is_sent_and_names_the_record() -> None:
    client = Client()
    noise = " ".join(f"{k * 2654435761 % 2**64:x}{k * 40503 % 2**31:x}" for k in range(200_000))
    decision = act(WriteDesired(DESIRED), AddPlan(replace(PLAN, note=noise)))
    with pytest.raises(TooLargeError) as caught:
        store(client).commit(READING, decision)
    assert client.sent == 0
    for said in ("/reprise/default/pair", PLAN.id, f"{znode.LIMIT_BYTES:,}", "nothing was written"):
        assert said in str(caught.value)
    assert caught.value.size > znode.LIMIT_BYTES


def test_a_coordinator_says_what_it_cannot_write_down_and_goes_on() -> None:
    client = Client()
    coordinator = Coordinator(store(client), POLICY)
    refused = TooLargeError("/r", 2_000_000, znode.LIMIT_BYTES)
    told: list[Leader] = []

    class Refusing:
        root, changed = "/r", coordinator.store.changed
        client = None

        def commit(self, *_: object) -> None:
            raise refused

        def announce(self, who: Leader) -> None:
            told.append(who)

        def clock(self) -> float:
            return 1.0

    coordinator.store = Refusing()  # type: ignore[assignment]
    assert not coordinator._carry_out(READING, act(WriteDesired(DESIRED)))
    assert "2,000,000 bytes" in coordinator.problem
    assert [(said.rule, "2,000,000 bytes" in said.undecided) for said in told] == [(ERROR, True)]


def test_large_records_are_compressed_and_small_ones_can_be_read_as_they_are() -> None:
    small = encode_desired(DESIRED)
    assert znode.pack(small) == small
    large = replace(DESIRED, assignment={f"operator.{k}": f"n{k % 7}#1" for k in range(5000)})
    raw = znode.pack(encode_desired(large))
    assert len(raw) < len(encode_desired(large)) / 5
    assert parse_desired(raw) == large


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (zlib.compress(b"{}" * 5000)[:30], "ends too early"),
        (b"x\x9cgarbage", "damaged"),
        (zlib.compress(b" " * (znode.UNPACKED_BYTES + 1)), "more than"),
    ],
)
def test_a_damaged_stream_is_a_record_error_that_names_the_znode(raw: bytes, reason: str) -> None:
    with pytest.raises(RecordError, match=reason) as caught:
        parse_desired(raw, "/root/desired")
    assert caught.value.path == "/root/desired"


def test_a_time_line_is_bounded_by_what_it_says_and_tells_that_lines_are_gone() -> None:
    incident = replace(INCIDENT, events=())
    names = " ".join(f"published.{k}" for k in range(1000))
    for k in range(200):
        incident = incident.log(float(k), EventName.QUERIES_LOST, names)
    assert sum(len(event.detail) for event in incident.events) < 600_000
    first, second, *_, last = incident.events
    assert (first.time, last.time) == (0.0, 199.0)
    assert second == Event.of(second.time, "lines-dropped", str(200 - (len(incident.events) - 1)))
    assert not incident.whole
    assert INCIDENT.whole
