"""Rounds as a host carries them out, with real sockets: relays are played by this test."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.errors import WireError
from reprise.spark_jobs.node.busy import Activity
from reprise.spark_jobs.node.command import Command, Install, Report
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.host_process import Service
from reprise.spark_jobs.node.links import DRIVER, FROM_INLET, INLET, OUTLET
from reprise.spark_jobs.node.outliving import Code
from reprise.spark_jobs.node.rounds import (
    Kind,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from reprise.spark_jobs.topology import expand
from tests.unit.spark_jobs.node.test_links import KEY, Played
from tests.unit.spark_jobs.node.test_outliving import resource_of
from tools.testbed.waiting import until

LINK = 5
RESOURCE = resource_of()


class Driver:
    """Orders of one driver's life, of which the first go with a job."""

    def __init__(self, home: Path) -> None:
        self.home, self.host = home, Host("host-1", home / "spill")
        self.service = Service(self.host, home, Code())
        self._dispatch = Dispatch(expand(RESOURCE))
        self.job = 0

    def order(self, job: int | None = None) -> bytes:
        self.job += 1
        command = Command(
            job or self.job, 1, 0, RESOURCE.document, str(self.home / "sink"), str(self.home / "checkpoints"),
            {"keep.0": "1.1.1"}, {"keep.0": Install(0)}, {"keep.0": 0}, {"keep.0": 0}, link=LINK, link_key=KEY.hex(),
        )  # fmt: skip
        return self._dispatch.orders(["n"], [command])[0]

    def job_of_one_stage(self) -> Report:
        head = {"epoch": 1, "job": self.job + 1, "stage": 0, "last": True}
        report = self.service.answer(head, [self.order()])[1]
        assert report is not None
        return report


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    found = Driver(tmp_path)
    found.job_of_one_stage()
    yield found
    found.host.close()


@pytest.fixture
def relays(driver: Driver) -> tuple[Played, Played]:
    outlet, inlet = Played(driver.home, OUTLET, LINK), Played(driver.home, INLET, LINK)
    return outlet, inlet


def asks(inlet: Played, question: bytes) -> None:
    inlet.plain.sendall(FROM_INLET.pack(-len(question)) + question)


def answered(outlet: Played) -> tuple[int, Kind, bytes]:
    """Round, kind and body of what goes to the driver."""
    slot, data = outlet.taken()
    assert slot == DRIVER
    return decode_question(data)[0], *decode_answer(data)


def test_orders_that_come_by_the_exchange_are_carried_out_and_reported(
    driver: Driver, relays: tuple[Played, Played]
) -> None:
    outlet, inlet = relays
    for number in (1, 2, 3):
        asks(inlet, encode_question(number, driver.order()))
        told, kind, body = answered(outlet)
        assert (told, kind) == (number, Kind.REPORT)
        assert Report.decode(body).installed == {"keep.0": "1.1.1"}
        assert driver.host.command is not None
        assert driver.host.command.job == driver.job


def test_a_round_is_refused_as_a_job_is(driver: Driver, relays: tuple[Played, Played]) -> None:
    outlet, inlet = relays
    for _ in range(3):
        driver.job_of_one_stage()
    for question, why in ((driver.order(job=1), "LateRequestError"), (b"{}", "VersionError")):
        asks(inlet, encode_question(7, question))
        told, kind, body = answered(outlet)
        assert (told, kind) == (7, Kind.ERROR)
        assert body.decode().startswith(why)
    assert driver.host.command is not None
    assert driver.host.command.job == 4


def test_user_code_that_ends_its_process_ends_one_round(
    driver: Driver, relays: tuple[Played, Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    outlet, inlet = relays

    def ends(*_: object) -> None:
        raise SystemExit("bye")

    with monkeypatch.context() as patch:
        patch.setattr(driver.host, "stage", ends)
        asks(inlet, encode_question(1, driver.order()))
        assert answered(outlet) == (1, Kind.ERROR, b"SystemExit: bye")
    asks(inlet, encode_question(2, driver.order()))
    assert answered(outlet)[:2] == (2, Kind.REPORT)


def test_what_holds_a_host_up_is_answered_while_it_does(
    driver: Driver, relays: tuple[Played, Played]
) -> None:
    outlet, inlet = relays
    held, free = threading.Event(), threading.Event()

    def works() -> None:
        with driver.service._turn.work():
            driver.host.busy.begin(Activity.STEP, "keep.0", 7)
            held.set()
            assert free.wait(300)
            driver.host.busy.clear()

    threading.Thread(target=works, daemon=True).start()
    assert held.wait(300)
    asks(inlet, encode_question(1, driver.order()))
    asks(inlet, encode_question(2))
    number, kind, body = answered(outlet)
    assert (number, kind) == (2, Kind.BUSY)
    assert body.decode().startswith("in operator keep, partition keep.0, batch 7")
    free.set()
    assert answered(outlet)[:2] == (1, Kind.REPORT)
    asks(inlet, encode_question(3))
    assert answered(outlet) == (3, Kind.BUSY, b"")


def test_an_answer_is_not_kept_waiting_by_frames(driver: Driver) -> None:
    """The outlet may not take what others do not read, and the driver would take this host for lost."""
    links = driver.service._links
    assert links is not None
    inlet = Played(driver.home, INLET, LINK)
    outlet = Played(driver.home, OUTLET, LINK)
    until(lambda: links.ready, "both relays")
    block = os.urandom(1 << 20)
    while links.send(1, block):
        pass
    asks(inlet, encode_question(1, driver.order()))
    until(lambda: driver.host.command is not None and driver.host.command.job == driver.job)
    slots = []
    while not slots or slots[-1] != DRIVER:
        slots.append(outlet.taken()[0])
    assert len(slots) < 6, "what the outlet had in hand when the answer came"


def test_what_is_no_answer_is_refused() -> None:
    assert decode_answer(encode_answer(2, Kind.ERROR, b"no")) == (Kind.ERROR, b"no")
    for data in (b"", b"short", encode_answer(2, Kind.ERROR, b"")[:-1] + b"\x09"):
        with pytest.raises(WireError, match="not an answer of a host"):
            decode_answer(data)
