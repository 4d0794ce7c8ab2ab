"""What a decision is made of, where the spec and the driver that runs do not agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper.observation import snapshot_of
from tests.support import oncall


@pytest.mark.parametrize("spec", [True, False])
@pytest.mark.parametrize("driver", [True, False])
def test_a_driver_whose_replays_differ_is_believed_while_the_spec_is_that_of_its_successor(
    spec: bool, driver: bool
) -> None:
    """A loss while the stream drains before the change of `batch.order` to aligned takes everything back: the driver would
    refuse anything else, and rows of a replay by part of it would not be those that are shown."""
    view = replace(view_of(oncall.resource()), deterministic=spec)
    seen = oncall.steady()
    assert seen.progress is not None and seen.progress.deterministic
    seen = replace(seen, progress=replace(seen.progress, deterministic=driver))
    assert snapshot_of(view, seen).topology.deterministic == (spec and driver)
    assert snapshot_of(view, replace(seen, progress=None)).topology.deterministic == spec
