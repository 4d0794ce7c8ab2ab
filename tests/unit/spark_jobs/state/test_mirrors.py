"""A ledger that is taken over from a mirror: whole, or not yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.mirrors import take_over
from tests.unit.spark_jobs.state.test_ledger import ledger, lists_less, sources  # noqa: F401  (a fixture)


def mirror_of(folder: Path) -> tuple[CheckpointStore, str, Ledger]:
    made, _ = ledger(folder / "mirror", live=True, fence=claim_epoch(str(folder / "mirror"), lambda n: n))
    for batch in range(1, 9):
        made.reach(batch)
    made.stored(8, 4)
    return CheckpointStore(str(folder / "here")), str(folder / "mirror"), made


@pytest.mark.usefixtures("sources")
def test_a_mirror_whose_ledger_has_a_hole_is_waited_for(tmp_path: Path) -> None:
    """Storage may bring it up to date in any order.  Taken over with a hole, the location would have it for ever."""
    here, mirror, made = mirror_of(tmp_path)
    late = tmp_path / "mirror" / "ranges" / "0000000006.json"
    late.rename(tmp_path / "on-its-way")
    with pytest.raises(StoreError, match="no block for batch 6, and one for batch 7"):
        take_over(here, (mirror,))
    assert not (tmp_path / "here" / "stream.json").exists()
    (tmp_path / "on-its-way").rename(late)
    assert take_over(here, (mirror,)) == mirror
    again, _ = ledger(tmp_path / "here", live=True)
    assert (again.trimmed, again.written, again.ranges) == (3, 8, made.ranges)


@pytest.mark.parametrize("hidden", [(8,), (6,), (4, 5, 6, 7, 8)])
@pytest.mark.usefixtures("sources")
def test_blocks_that_a_mirror_does_not_list_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: tuple[int, ...]
) -> None:
    here, mirror, made = mirror_of(tmp_path)
    with monkeypatch.context() as patch:
        lists_less(patch, *(f"{first:010d}.json" for first in hidden))
        assert take_over(here, (mirror,)) == mirror
    again, _ = ledger(tmp_path / "here", live=True)
    assert (again.trimmed, again.written, again.ranges) == (3, 8, made.ranges)
