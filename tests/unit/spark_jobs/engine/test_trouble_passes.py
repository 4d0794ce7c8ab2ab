"""Trouble outside of the engine is told and passes; only a later driver ends this one."""

from __future__ import annotations

import logging

import pytest

from reprise.spark_jobs.engine.trouble import passing, say_slow
from reprise.spark_jobs.errors import DamagedError, SupersededError
from reprise.spark_jobs.node.command import Report


def test_what_a_client_raises_is_a_problem_with_its_kind() -> None:
    problems: list[str] = []
    with passing(problems, "old checkpoints stay"):
        raise RuntimeError("503")
    assert problems == ["old checkpoints stay: RuntimeError: 503"]


def test_an_error_of_the_store_names_its_file_itself() -> None:
    problems: list[str] = []
    with passing(problems, "old checkpoints stay"):
        raise DamagedError("manifests/7.json is damaged")
    assert problems == ["manifests/7.json is damaged"]


def test_a_later_driver_ends_this_one_and_is_no_problem() -> None:
    problems: list[str] = []
    with pytest.raises(SupersededError), passing(problems, "old checkpoints stay"):
        raise SupersededError("a driver of epoch 2 has begun")
    assert problems == []


def test_whoever_ends_the_process_is_not_held_up() -> None:
    with pytest.raises(KeyboardInterrupt), passing([], "old checkpoints stay"):
        raise KeyboardInterrupt


def test_a_slow_job_is_said_with_the_node_that_was_busy_for_longest(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "reprise.engine"):
        say_slow(12, 4.25, ["n1", "n2"], Report(1, "h", {}, {}, busy_s=3.96))
    assert caplog.messages == ["event=slow-job job=12 took=4.2 slots=2 busiest=n2 busy=4.0"]
