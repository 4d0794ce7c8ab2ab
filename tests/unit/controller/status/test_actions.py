"""The words of a run's record: what breaks something is told from what gives, and each fault is one of a fault file."""

from __future__ import annotations

from typing import get_args

from reprise.controller.local.report.output_availability import first_failure
from reprise.controller.status import actions
from reprise.controller.status.actions import BREAKS, FAILURES, FaultAction


def test_what_fails_and_what_breaks_at_once_are_faults_and_what_was_seen_is_none() -> None:
    assert set(BREAKS) | {"notice"} == set(FAILURES) < set(get_args(FaultAction)) - {"add", "thaw", "start"}
    seen = {value for name, value in vars(actions).items() if name.isupper() and isinstance(value, str)}
    assert len(seen) == 7 and seen.isdisjoint(get_args(FaultAction))


def test_the_first_failure_of_a_run_is_the_first_thing_that_was_broken() -> None:
    done = [
        {"action": name, "time": at} for at, name in enumerate(("add", actions.ARRIVED, "notice", "kill"))
    ]
    assert first_failure(done, [0.5]) == 2.0
    assert first_failure(done[:2], [0.5]) == 0.5
    assert first_failure([{**done[2], "error": "no such node"}], []) is None
