"""What would be lost with a failure domain is in the status of a StreamTopology, by the operator's own classes."""

from __future__ import annotations

import json

import pytest

from reprise.controller.operator.loop.topology import document_of
from reprise.spark_jobs.topology import expand, from_json
from tests.unit.controller.operator.loop.test_skip_annotation import MemoryScene


@pytest.mark.parametrize("label", ["rack", None])
def test_the_status_says_what_would_be_lost_where_a_label_is_named(label: str | None) -> None:
    """Nobody knows labels of these nodes, so each is a domain of its own."""
    scene = MemoryScene()
    if label is not None:
        scene.body["spec"]["nodes"]["failureDomain"] = label
    scene.running()
    status = [body for verb, path, body in scene.api.calls if verb == "apply" and path.endswith("/status")][
        -1
    ]["status"]
    if label is None:
        assert "failureDomains" not in status
        return
    desired, queries = scene.now(), expand(from_json(json.dumps(document_of(scene.body)))).queries.values()
    lost = {
        node: sum(q.priority for q in queries if any(desired.assignment[p] == node for p in q.partitions))
        for node in {f"{pod}#1" for pod in scene.pods}
    }
    found = status["failureDomains"]
    total = sum(q.priority for q in queries)
    assert (found["count"], found["priority"], found["worst"]) == (len(scene.pods), total, max(lost.values()))
    assert f"{sum(lost.values()) / len(lost):.1f} would be lost" in found["summary"]
