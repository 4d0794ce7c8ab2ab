"""What a host says that it has stored becomes the record of a snapshot, of the kind that says how it was stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.recovery_line import Heard
from reprise.spark_jobs.engine.acknowledged import snapshot_of
from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.state.snapshot import Kind, StateFile

FILE = StateFile("states/a.0", 12, "ab" * 32)
ACK = Ack("a.0", "i1", 8, FILE.to_json(), channels={"b.0": 9}, watermark=3)


@pytest.mark.parametrize(
    ("ack", "kind", "sent"),
    [
        (ACK, Kind.LOCAL, 8),
        (replace(ACK, forced=True), Kind.FORCED, 8),
        (replace(ACK, sent=11), Kind.WINDOW_LOG, 11),
        (replace(ACK, made=40, inputs={"s.0": (5, 7)}), Kind.ARRIVAL, 40),
        (replace(ACK, made=40, sent=11, forced=True), Kind.ARRIVAL, 40),
        (replace(ACK, sent=0), Kind.WINDOW_LOG, 0),
    ],
)
def test_the_kind_and_where_output_goes_on(ack: Ack, kind: Kind, sent: int) -> None:
    found = snapshot_of(ack, 4)
    assert (found.kind, found.sent, found.first, found.number, found.position) == (kind, sent, sent + 1, 4, 8)


def test_the_file_the_channels_and_the_inputs_are_those_that_the_host_names() -> None:
    found = snapshot_of(replace(ACK, made=40, inputs={"s.0": (5, 7)}), 1)
    assert (found.partition, found.file, found.channels, found.watermark) == ("a.0", FILE, {"b.0": 9}, 3)
    assert found.inputs == {"s.0": Heard(marker=5, taken=7)}
    assert not found.even


def test_a_partition_without_a_state_has_no_file() -> None:
    assert snapshot_of(replace(ACK, file=None), 1).file is None
