"""`switches.recommend` of the chart, where the resource asks for a way back that `recovery.mode: recommend` refuses."""

from __future__ import annotations

import json

import pytest

from reprise.controller.operator.loop.topology import document_of
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import check, from_json
from reprise.spark_jobs.topology.binding import unbound
from tests.unit.controller.operator.loop.test_skip_annotation import MemoryScene

WINDOW = {"keys": ["tag"], "aggregate": {"n": "count()"}, "size": "2s", "interval": "500ms"}


@pytest.mark.parametrize("way", ["amnesia", "upstream-backup"])
def test_the_switch_refuses_no_topology_and_its_plans_wait_as_others_do(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for waits in ("reporter.PUBLISH_S", "approval.ASK_S"):
        monkeypatch.setattr(f"reprise.controller.operator.status.{waits}", 0.0)
    scene = MemoryScene()
    count = scene.body["spec"]["operators"][1]
    count |= {"class": "reprise.operators:RunningAggregate", "with": WINDOW, "availability": way}
    assert list(unbound(from_json(json.dumps(document_of(scene.body))))) == []
    scene.switches["recommend"] = True
    one = scene.running()
    before = scene.now().assignment
    scene.kill("e1", "e2")
    scene.until(lambda: scene.conditions()["Ready"] == ("False", "AwaitingApproval"), "it waits", one)
    for _ in range(5):
        scene.step(one)
    assert "SpecRefused" not in scene.reasons() and scene.now().assignment == before
    (proposed,) = {path for path in scene.api.objects if "recoveryplans" in path and path.count("-") >= 3}
    scene.api.objects[proposed]["metadata"]["annotations"] = {"reprise.dev/approved": "true"}
    scene.until(lambda: scene.now().assignment != before, "it is carried out", one)

    scene.body["spec"]["recovery"] = {"mode": "recommend"}
    with pytest.raises(SpecError, match=f"'{way}' is not built for `recovery.mode: recommend`"):
        check(from_json(json.dumps(document_of(scene.body))))
