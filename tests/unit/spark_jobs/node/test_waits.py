"""What a partition waits for: the last word of each place counts, and only trouble that passes ends here."""

from __future__ import annotations

import pytest

from reprise.algorithms.outside import Outside
from reprise.spark_jobs.errors import NotYetError, SinkError, SourceError
from reprise.spark_jobs.node.waits import Place, Waits


def meet(waits: Waits, place: Place, error: Exception | None) -> list[str]:
    """What is said of an error at a place."""
    said: list[str] = []
    with waits.passing(place, said.append, "sink.0"):
        if error is not None:
            raise error
    return said


def test_nothing_is_waited_for_until_something_is_refused_and_not_after_it_was_answered() -> None:
    waits = Waits()
    assert waits.outside is None
    assert meet(waits, Place.STEP, SourceError("no broker")) == ["sink.0: no broker"]
    assert waits.outside is Outside.SOURCE
    assert meet(waits, Place.STEP, None) == []
    assert waits.outside is None


def test_an_answer_at_one_place_does_not_end_the_trouble_of_another() -> None:
    waits = Waits()
    meet(waits, Place.PUBLISH, SinkError("full"))
    meet(waits, Place.STEP, None)
    assert waits.outside is Outside.SINK
    meet(waits, Place.RESEND, SourceError("away"))
    assert waits.outside is Outside.SOURCE, "a source before a sink"
    meet(waits, Place.RESEND, None)
    assert waits.outside is Outside.SINK


def test_what_is_not_there_yet_says_nothing_and_leaves_what_was_known() -> None:
    waits = Waits()
    meet(waits, Place.STEP, SinkError("away"))
    assert meet(waits, Place.STEP, NotYetError("soon")) == []
    assert waits.outside is Outside.SINK


def test_a_disk_is_said_and_is_neither_source_nor_sink() -> None:
    waits = Waits()
    meet(waits, Place.STEP, SinkError("away"))
    assert meet(waits, Place.STEP, OSError(28, "No space left on device")) == [
        "sink.0: [Errno 28] No space left on device"
    ]
    assert waits.outside is None


def test_full_buffers_are_said_and_raised_for_who_can_make_room() -> None:
    waits, said = Waits(), list[str]()
    with pytest.raises(BufferError), waits.passing(Place.STEP, said.append, "count.0"):
        raise BufferError("no room")
    assert said == ["count.0: no room"]


def test_what_ends_a_partition_goes_on() -> None:
    waits, said = Waits(), list[str]()
    with pytest.raises(ValueError, match="poison"), waits.passing(Place.STEP, said.append, "count.0"):
        raise ValueError("poison")
    assert said == []
