"""What a task raised, out of Spark's text."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest

from reprise.spark_jobs.errors import DataPlaneError, HostLostError
from reprise.spark_jobs.node import shim
from reprise.spark_jobs.node.shim import Stage, Warm, slot_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "reprise.spark_jobs.errors.DataPlaneError: slot 3: TypeError: not so",
            ("TypeError: not so", 3),
        ),
        ("slot 12: slot 4: who knows", ("slot 4: who knows", 12)),
        ("ExecutorLostFailure (executor 3 exited)", ("ExecutorLostFailure (executor 3 exited)", None)),
        ("slot 3 belongs to 127.0.1.4, but", ("slot 3 belongs to 127.0.1.4, but", None)),
    ],
)
def test_the_slot_is_found_in_the_text_of_a_failed_job(text: str, found: tuple[str, int | None]) -> None:
    assert slot_of(text) == found


@pytest.mark.parametrize("kind", [DataPlaneError, HostLostError])
def test_a_task_says_which_slot_it_was(monkeypatch: pytest.MonkeyPatch, kind: type[DataPlaneError]) -> None:
    def refuse(*_: object) -> tuple[list[int], list[bytes]]:
        raise kind("TypeError: not so")

    monkeypatch.setattr(shim, "exchange", refuse)
    with pytest.raises(kind, match=r"^slot 2: TypeError: not so$") as raised:
        Stage((1, 1), 1, False)(2, [])
    assert slot_of(f"{type(raised.value).__name__}: {raised.value}") == ("TypeError: not so", 2)


def test_a_node_is_made_ready_by_a_host_that_answers_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that serves again has the connection to a host that may have died since."""
    before, after = Pipe(), Pipe()
    before[1].close()
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.1.4")
    monkeypatch.setattr(shim, "_connection", before[0])
    monkeypatch.setattr(shim, "_connect", lambda _: after[0])
    ((began, met),) = Warm()(0, [(0, ("at", "127.0.1.4"))])
    assert began <= met
    assert before[0].closed
    assert shim._connection is after[0]
