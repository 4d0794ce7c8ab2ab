"""The words of a run's record: what breaks something is told from what gives, and each fault is one of a fault file."""

from __future__ import annotations

from typing import get_args

from reprise.controller.local.report.output_availability import first_failure
from reprise.controller.status import actions
from reprise.controller.status.actions import BREAKS, FAILURES, FaultAction


def test_every_failure_is_a_fault_and_what_breaks_at_once_is_one() -> None:
    assert set(BREAKS) < set(FAILURES) < set(get_args(FaultAction))
    assert {"add", "thaw", "start"}.isdisjoint(FAILURES)


def test_a_notice_is_a_failure_that_comes_later() -> None:
    assert set(FAILURES) - set(BREAKS) == {"notice"}


def test_words_of_what_was_seen_are_no_faults() -> None:
    seen = {value for name, value in vars(actions).items() if name.isupper() and isinstance(value, str)}
    assert len(seen) == 7 and seen.isdisjoint(get_args(FaultAction))


def test_the_first_failure_of_a_run_is_the_first_thing_that_was_broken() -> None:
    done = [
        {"action": name, "time": at} for at, name in enumerate(("add", actions.ARRIVED, "notice", "kill"))
    ]
    assert first_failure(done, [0.5]) == 2.0
    assert first_failure(done[:2], [0.5]) == 0.5
    assert first_failure([{**done[2], "error": "no such node"}], []) is None
