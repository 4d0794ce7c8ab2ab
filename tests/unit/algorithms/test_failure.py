"""Failures as values, and as the texts that records and people have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.failure import Failure, FailureKind
from reprise.scheduler import model
from reprise.spark_jobs.node import command

KNOWN = [kind for kind in FailureKind if kind is not FailureKind.OTHER]


@given(st.sampled_from(KNOWN), st.text())
def test_what_is_written_is_read_as_it_was(kind: FailureKind, reason: str) -> None:
    assert Failure.parse(str(Failure(kind, reason))) == Failure(kind, reason)


@given(st.text())
def test_any_text_is_a_failure_and_keeps_what_it_says(text: str) -> None:
    found = Failure.parse(text)
    assert str(found) == text or (found.reason == "" and text == f"{found.kind.value}: ")


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (
            "poison: operator a, batch 3: ValueError: no",
            FailureKind.POISON,
            "operator a, batch 3: ValueError: no",
        ),
        ("node lost", FailureKind.NODE_LOST, ""),
        ("poisonous", FailureKind.OTHER, "poisonous"),
        ("poison", FailureKind.POISON, ""),
        ("burnt: by the sun", FailureKind.OTHER, "burnt: by the sun"),
        ("other: thing", FailureKind.OTHER, "other: thing"),
    ],
)
def test_the_texts_of_records(text: str, kind: FailureKind, reason: str) -> None:
    assert Failure.parse(text) == Failure(kind, reason)


def test_only_a_partitions_own_code_poisons_it() -> None:
    assert [kind for kind in FailureKind if Failure(kind).is_poison] == [FailureKind.POISON]


def test_what_a_host_reports_is_what_a_decision_rests_on() -> None:
    """One type: nobody between them can leave a kind out."""
    assert command.Failure is model.Failure is Failure
