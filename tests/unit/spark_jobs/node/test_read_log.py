"""What a log that cannot be read is taken for: damage, after which an older snapshot is tried, or a store that is away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from reprise.spark_jobs.errors import CheckpointError, DamagedError, NewerVersionError, StoreError
from reprise.spark_jobs.node import logged
from reprise.spark_jobs.node.channels import table_of
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.node.partition_log import EventualCheckpoint
from reprise.spark_jobs.state.footprints import Found
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.state.window_log import End

INSTALL = Install(4, file=StateFile("cp-00000004/count.0.1.log", 10, "00").to_json(), sent=6)


class _Store:
    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble

    def read_segments(self, file: StateFile) -> list[Any]:
        if self.trouble is not None:
            raise self.trouble
        return []


@pytest.mark.parametrize(
    ("raised", "taken_for"),
    [
        (KeyError("ends"), DamagedError),
        (IndexError("no record"), DamagedError),
        (ValueError("cut off"), DamagedError),
        (MemoryError("of this node"), StoreError),
        (NewerVersionError("version 3"), StoreError),
    ],
)
def test_what_its_bytes_raise_is_damage_and_what_the_node_lacks_is_not(
    raised: Exception, taken_for: type[CheckpointError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(segments: object, sent: int) -> None:
        raise raised

    monkeypatch.setattr(logged, "eventual_checkpoint", read)
    with pytest.raises(taken_for, match="cp-00000004"):
        logged.read_log(cast(Any, _Store()), INSTALL)


def test_what_a_stores_client_raises_passes() -> None:
    with pytest.raises(StoreError, match="TimeoutError"):
        logged.read_log(cast(Any, _Store(TimeoutError("no answer"))), INSTALL)


def test_damage_that_the_store_finds_is_told_as_it_is() -> None:
    with pytest.raises(DamagedError, match="not the bytes"):
        logged.read_log(cast(Any, _Store(DamagedError("not the bytes"))), INSTALL)


@pytest.mark.parametrize("since", [3, 5])
def test_a_log_whose_oldest_slot_is_not_where_the_record_has_it_is_damaged(
    since: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders give what follows the record's batch: rows between would be missing, or counted by nobody."""
    found = EventualCheckpoint(Found(6, since, End(0), (), {}, 0, End(0)), None, table_of(()))
    monkeypatch.setattr(logged, "eventual_checkpoint", lambda segments, sent: found)
    with pytest.raises(DamagedError, match=f"batch {since}, and of batch 4 by the record"):
        logged.read_log(cast(Any, _Store()), INSTALL)
    right = replace(found, found=replace(found.found, since=4))
    monkeypatch.setattr(logged, "eventual_checkpoint", lambda segments, sent: right)
    assert logged.read_log(cast(Any, _Store()), INSTALL) is right
