"""A later driver asks what a host has: what the host answers, and when it has to drop everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprise.spark_jobs.node.command import Command, Report
from reprise.spark_jobs.node.survey import Survey, why_not

FIRST = Command(1, 1, 0, "topology", "sink", "checkpoints", stream=5.0, horizon=7)
ASKS = replace(FIRST, job=1, epoch=2, survey=True, horizon=0)
ANSWER = Report(0, "host", {}, {})


def test_a_host_goes_on_with_what_it_has_for_its_own_driver_and_for_one_that_has_asked() -> None:
    assert why_not(FIRST, replace(FIRST, job=2), "topology") == ""
    assert why_not(FIRST, ASKS, "topology") == ""
    assert why_not(replace(FIRST, link=3), ASKS, "topology") == ""


@pytest.mark.parametrize(
    ("before", "change", "why"),
    [
        (None, {}, "it has begun just now"),
        (FIRST, {"topology": "another"}, "it has partitions of another resource"),
        (FIRST, {"survey": False}, "it was not surveyed"),
        (FIRST, {"stream": 6.0}, "it has partitions of another stream"),
        (FIRST, {"sink": "elsewhere"}, "it has partitions of another stream"),
        (FIRST, {"checkpoints": "elsewhere"}, "it has partitions of another stream"),
    ],
)
def test_why_it_cannot(before: Command | None, change: dict[str, Any], why: str) -> None:
    assert why_not(before, replace(ASKS, **change), "topology") == why


def test_the_answer_says_what_was_released_and_who_has_ordered_last() -> None:
    survey = Survey()
    survey.heard(None, FIRST, "")
    survey.heard(FIRST, ASKS, "")
    answer = survey.answer(ANSWER)
    assert (answer.horizon, answer.led_by, answer.refused) == (7, 1, "")


def test_a_driver_that_has_only_asked_does_not_count_as_one_that_has_ordered() -> None:
    survey, third = Survey(), replace(ASKS, epoch=3)
    survey.heard(None, FIRST, "")
    survey.heard(FIRST, ASKS, "")
    survey.heard(ASKS, third, "")
    assert survey.answer(ANSWER).led_by == 1


def test_why_it_was_dropped_is_said_until_the_next_order() -> None:
    survey = Survey()
    survey.heard(FIRST, ASKS, "it has partitions of another stream")
    survey.heard(ASKS, ASKS, "")
    assert survey.answer(ANSWER).refused == "it has partitions of another stream"
    survey.heard(ASKS, replace(ASKS, survey=False, horizon=9), "")
    assert (survey.answer(ANSWER).refused, survey.answer(ANSWER).horizon) == ("", 9)
