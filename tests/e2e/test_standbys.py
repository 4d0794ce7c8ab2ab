"""Operators with `availability: active-standby` or `passive-standby` on a real cluster: SIGKILL of the node of a partition,
which goes on where its standby is; nothing goes back, and the output is that of a run without a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.topology import load_text
from tests.e2e import scenario
from tests.support.hashtags import WITH_STANDBYS, at_pace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


PASSIVE = WITH_STANDBYS.replace(
    "availability: active-standby", "availability: passive-standby\n      standby: {every: 3}"
)
assert PASSIVE.count("passive-standby") == 2


@pytest.mark.parametrize(
    ("text", "later"),
    [
        pytest.param(WITH_STANDBYS, [], id="a node"),
        pytest.param(PASSIVE, [], id="a node, passive"),
        pytest.param(
            WITH_STANDBYS,
            [{"on": "closed", "add": 1}, {"batch": 90, "kill": ["@count.0"]}],
            marks=pytest.mark.soak,
            id="a node, and later that of the standby",
        ),
    ],
)
def test_a_partition_goes_on_where_its_standby_is(
    large_nodes: EmbeddedCluster, tmp_path: Path, text: str, later: list[dict[str, Any]]
) -> None:
    resource = load_text(text, changes=at_pace("200ms", 400, 120, 15))
    expected = scenario.write_expected(resource, tmp_path / "expected")
    faults = [{"on": "checkpoint", "kill": ["@count.0"]}, *later]
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults)
    scenario.assert_exactly_once(result, expected)
    (first, *_) = result.incident["incidents"]
    promoted = [line for line in result.incident["timeline"] if line["what"] == "promoted"]
    assert promoted, "it was restored from the checkpoint"
    assert "count.0 to " in str(promoted[0])
    assert not any(plan["rollback"] for plan in first["plans"]), "everything went back"
    if not later:
        assert not any("count.0" in plan["added"] for plan in first["plans"]), "it was restored by a plan"
