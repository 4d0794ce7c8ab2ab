"""Rounds as the driver asks for them: of an exchange whose hosts do not answer, or answer that they cannot."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from reprise.spark_jobs.engine import continuous
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.continuous import ContinuousJobs
from reprise.spark_jobs.errors import HostBusyError
from reprise.spark_jobs.exchange.exchange import Desk
from reprise.spark_jobs.node.command import Report
from reprise.spark_jobs.node.rounds import Kind, decode_question, encode_answer

HOSTS = ("10.0.0.1", "10.0.0.2")
Host = Callable[[int, bytes], tuple[Kind, bytes] | None]
"""What it answers in a round; None: nothing."""


class JavaDesk:
    """Hosts that answer at once, or never."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts, self._answers = hosts, [b""] * len(hosts)

    def begin(self, number: int, orders: bytes) -> None:
        for slot, host in enumerate(self.hosts):
            (length,) = struct.unpack_from(">i", orders)
            told, order = decode_question(orders[4 : 4 + length])
            assert told == number
            answer = host(number, order)
            self._answers[slot] = b"" if answer is None else encode_answer(number, *answer)
            orders = orders[4 + length :]
        assert not orders

    def all(self, _milliseconds: int) -> bool:
        return all(self._answers)

    def answers(self) -> bytes:
        return b"".join(struct.pack(">i", len(answer)) + answer for answer in self._answers)


class Exchange:
    hosts, failure = HOSTS, None

    def __init__(self, java: JavaDesk) -> None:
        self.desk = Desk(java, len(HOSTS))


class Chain:
    def __init__(self) -> None:
        self.ran = 0

    def run(self, *_: object) -> list[Report]:
        self.ran += 1
        return []


def works(number: int, order: bytes) -> tuple[Kind, bytes]:
    return (
        (Kind.REPORT, Report(0, f"{number} {order.decode()}", {}, {}).encode()) if order else (Kind.BUSY, b"")
    )


def jobs_of(*hosts: Host) -> Any:
    jobs: Any = ContinuousJobs.__new__(ContinuousJobs)
    jobs.link, jobs._chain, jobs._exchange, jobs.stands = 7, Chain(), Exchange(JavaDesk(hosts)), True
    return jobs


def run(jobs: Any, cancelled: threading.Event | None = None) -> list[Report]:
    found: list[Report] = jobs.run((1, 1), [b"a", b"b"], 1, cancelled or threading.Event(), 60.0)
    return found


def test_orders_go_with_jobs_until_all_hosts_are_connected() -> None:
    jobs = jobs_of(works, works)
    jobs.stands = False
    assert run(jobs) == run(jobs) == []
    jobs.stands = True
    assert [report.host for report in run(jobs)] == ["1 a", "1 b"]
    assert [report.host for report in run(jobs)] == ["2 a", "2 b"]
    assert jobs._chain.ran == 2


def test_where_spark_is_ending_the_round_fails_as_a_job_does() -> None:
    jobs = jobs_of(works, works)

    def gone(*_: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    jobs._exchange.desk._java.begin = gone
    with pytest.raises(ChainError, match="exchange 7: Answer from Java side is empty"):
        run(jobs)


def test_orders_that_a_host_cannot_carry_out_fail_the_round_and_name_its_slot() -> None:
    jobs = jobs_of(works, lambda *_: (Kind.ERROR, b"LateRequestError: no"))
    with pytest.raises(ChainError, match=r"^LateRequestError: no$") as raised:
        run(jobs)
    assert raised.value.slot == 1


def test_who_does_not_answer_is_asked_what_holds_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous, "ANSWER_S", 0.0)

    def stuck(_number: int, order: bytes) -> tuple[Kind, bytes] | None:
        return None if order else (Kind.BUSY, b"in operator slow")

    for host, says in ((stuck, "it has been in operator slow"), (lambda *_: None, "nor to the question why")):
        jobs = jobs_of(works, host)
        with pytest.raises(HostBusyError, match=f"10.0.0.2 has not answered for 0 s.*{says}") as raised:
            run(jobs)
        assert raised.value.slot == 1


def test_nobody_is_waited_for_when_a_node_is_lost_or_the_exchange_has_ended() -> None:
    jobs, lost = jobs_of(works, lambda *_: None), threading.Event()
    lost.set()
    with pytest.raises(ChainError, match="a node was lost"):
        run(jobs, lost)
    threading.Timer(0.1, lambda: setattr(jobs._exchange, "failure", "its tasks have ended")).start()
    with pytest.raises(ChainError, match="exchange 7 has ended: its tasks have ended"):
        run(jobs)
