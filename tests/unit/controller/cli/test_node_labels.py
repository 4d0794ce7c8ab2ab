"""Labels of the nodes of `reprise run`: what is said becomes what each agent is told, in turn."""

from __future__ import annotations

import click
import pytest

from reprise.controller.cli.run_command import _labels
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.cluster.config import ClusterConfig


def test_nodes_take_the_values_in_turn() -> None:
    cluster = EmbeddedCluster(ClusterConfig(labels=_labels(["zone=a,b", "rack=r1,r2,r3"])))
    told = [cluster._labels() for _ in range(4)]
    assert told == [
        ["--label", f"zone={zone}", "--label", f"rack={rack}"]
        for zone, rack in (("a", "r1"), ("b", "r2"), ("a", "r3"), ("b", "r1"))
    ]


@pytest.mark.parametrize("said", ["zone", "zone=", "=a", "zone=,"])
def test_what_is_no_label_is_refused(said: str) -> None:
    with pytest.raises(click.BadParameter, match="is not KEY=VALUE"):
        _labels([said])
