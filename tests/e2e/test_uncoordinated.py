"""Partitions that store themselves by their own clocks, or as messages make them, on a real cluster: SIGKILL of nodes and of
the driver, and the output as without faults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NODES = 4
TWO_NODES: list[Mapping[str, Any]] = [{"batch": 16, "kill": ["n3", "n4"]}, {"on": "plan", "add": 2}]
DRIVER: list[Mapping[str, Any]] = [{"batch": 16, "crash": "driver"}]


@pytest.mark.parametrize(
    ("protocol", "log", "faults"),
    [
        pytest.param("uncoordinated", "checkpointed", TWO_NODES),
        pytest.param("uncoordinated", "memory", DRIVER),
        ("communication-induced", "checkpointed", TWO_NODES),
        pytest.param("uncoordinated", "memory", TWO_NODES),
        pytest.param("uncoordinated", "checkpointed", DRIVER),
        pytest.param("communication-induced", "checkpointed", DRIVER),
    ],
    ids=[
        "two nodes, checkpointed",
        "driver, memory",
        "two nodes, induced",
        "two nodes, memory",
        "driver, checkpointed",
        "driver, induced",
    ],
)
def test_output_is_as_without_faults(
    protocol: str,
    log: str,
    faults: list[Mapping[str, Any]],
    large_nodes: EmbeddedCluster,
    expected: Path,
    tmp_path: Path,
) -> None:
    resource = scenario.topology2(
        NODES,
        **{
            "nodes.cpu": "600m",
            "checkpoint.protocol": protocol,
            "checkpoint.log": log,
            "checkpoint.interval": "2s",
        },
    )
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults)
    scenario.assert_exactly_once(result, expected)
    assert result.incident["incidents"], "the faults must have been noticed"
    said = [
        line
        for line in (result.out / "logs" / "driver.log").read_text().splitlines()
        if "event=line-" in line
    ]
    assert any("event=line-recorded" in line for line in said), "a line was on record"
    if faults is TWO_NODES:
        taken = [line for line in said if "event=line-taken" in line]
        assert any("back=0 everything=False" in line for line in taken), taken
        assert "went-back" in {line["what"] for line in result.incident["timeline"]}
        if protocol == "communication-induced":
            assert " forced=0 " not in taken[-1], taken
