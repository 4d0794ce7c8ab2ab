"""The frozen resource: base units, defaults, JSON both ways, overrides, and the schema for the CRD."""

from __future__ import annotations

import json
import pickle

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import from_json, from_object, json_schema, override, to_json
from reprise.spark_jobs.topology.kubernetes import PodModel, Said
from reprise.spark_jobs.topology.resource import Mode
from reprise.spark_jobs.topology.schema import Closed
from tests.support.topologies import document, operator, source

MINIMAL = document(source(), operator("o", "s", output={}))


@pytest.mark.parametrize(
    ("storage", "copies", "left"),
    [("7Gi", "2Gi", 1 << 30), ("4Gi", "2Gi", 0), ("64Gi", "2Gi", 2 << 30), ("7Gi", "0", 0)],
)
def test_copies_of_states_leave_a_pod_s_disk_to_what_was_there_before(
    storage: str, copies: str, left: int
) -> None:
    changes = {"checkpoint": {"localCopies": copies}, "kubernetes": {"executor": {"storage": storage}}}
    found = from_object({**MINIMAL, "spec": {**MINIMAL["spec"], **changes}})
    assert found.checkpoint.local_copies_bytes == left
    assert found.kubernetes.executor_storage_bytes == int(storage[:-2]) << 30


@pytest.mark.parametrize(("disk", "more"), [({}, 8 << 30), ({"stateDisk": "1Gi"}, 1 << 30)])
def test_pods_ask_for_what_states_may_take(disk: dict[str, str], more: int) -> None:
    limited = {"checkpoint": {"state": "paged", "stateMemory": "2Gi", **disk}}
    found = from_object({**MINIMAL, "spec": {**MINIMAL["spec"], **limited}})
    plain = from_object(MINIMAL)
    assert (found.checkpoint.state_memory_bytes, found.checkpoint.state_disk_bytes) == (2 << 30, more)
    assert (plain.checkpoint.state_memory_bytes, plain.checkpoint.state_disk_bytes) == (0, 0)
    assert found.kubernetes.executor_memory_bytes - plain.kubernetes.executor_memory_bytes == 2 << 30
    assert found.kubernetes.executor_storage_bytes - plain.kubernetes.executor_storage_bytes == more
    assert "stateMemory" not in plain.document


def test_defaults_are_those_of_the_design() -> None:
    r = from_object(MINIMAL)
    assert (r.namespace, r.batch_interval_s, r.paused) == ("default", 0.5, False)
    assert (r.checkpoint.interval_s, r.checkpoint.every_batches, r.checkpoint.keep) == (10.0, None, 3)
    assert (r.recovery.strategy, r.recovery.correlated_nodes, r.recovery.window_s) == (
        "incremental",
        2,
        None,
    )
    assert (r.recovery.cpu_cap, r.recovery.time_limit_s, r.recovery.algorithm) == (0.8, 1.0, "auto")
    assert (r.recovery.buffer_memory_bytes, r.recovery.buffer_disk_bytes) == (64 << 20, 4 << 30)
    assert r.checkpoint.local_copies_bytes == 2 << 30
    assert r.kubernetes.executor_storage_bytes == 8 << 30
    assert r.operator("o").output is not None and r.operator("o").output.priority_of(0) == 1
    assert r.operator("o").inputs[0].grouping.mode is Mode.SINGLE
    assert r.operator("o").deterministic is None


def test_quantities_are_in_base_units() -> None:
    items = (source(resources={"cpu": "20m"}), operator("o", "s", output={}, resources={"cpu": 2}))
    r = from_object(document(*items, checkpoint={"everyBatches": 5}, nodes={"count": 4, "cpu": "200m"}))
    assert (r.source("s").cpu_cores, r.operator("o").cpu_cores, r.nodes.cpu_cores) == (0.02, 2.0, 0.2)
    assert (r.checkpoint.interval_s, r.checkpoint.every_batches) == (None, 5)


def test_json_both_ways_gives_the_same_resource() -> None:
    r = from_object(MINIMAL)
    assert from_json(to_json(r)) == r
    assert to_json(from_json(to_json(r))) == to_json(r)
    assert pickle.loads(pickle.dumps(r)) == r  # noqa: S301  Spark may ship it inside a closure
    with pytest.raises(SpecError, match="not JSON"):
        from_json("{")
    with pytest.raises(KeyError):
        r.operator("nobody")


def test_what_the_api_server_adds_is_left_aside() -> None:
    served = json.loads(json.dumps(MINIMAL))
    served["metadata"] |= {"uid": "1", "resourceVersion": "2", "managedFields": [], "labels": {"a": "b"}}
    served["status"] = {"conditions": []}
    assert from_object(served).labels == {"a": "b"}


def test_overrides_are_checked_like_the_rest() -> None:
    r = override(
        from_object(MINIMAL), {"recovery.strategy": "blocking", "nodes.count": 7, "sources[s].with.rate": 99}
    )
    assert (r.recovery.strategy, r.nodes.count, r.source("s").parameters) == ("blocking", 7, {"rate": 99})
    assert override(r, {"nodes.count": None}).nodes.count == 2
    for changes, field in (
        ({"recovery.strategy": "hope"}, "spec.recovery.strategy"),
        ({"recovery.strateg": "blocking"}, "spec.recovery.strateg"),
        ({"sources[t].with.rate": 1}, "spec.sources[t].with.rate"),
        ({"sources[s]": {}}, "spec.sources[s]"),
    ):
        with pytest.raises(SpecError) as caught:
            override(r, changes)
        assert caught.value.field == field


def _models(model: type[Closed]) -> list[type[Closed]]:
    """With those below it, but for what tests define."""
    own = [sub for sub in model.__subclasses__() if sub.__module__.startswith("reprise.")]
    return [model, *(m for sub in own for m in _models(sub))]


def test_the_schema_is_closed_and_describes_every_field() -> None:
    schema = json_schema()
    objects = [schema, *schema["$defs"].values()]
    assert len(objects) == len(_models(Closed)) - len((Closed, Said, PodModel)), "bases of the others"
    for each in objects:
        assert each["additionalProperties"] is False
    recovery = schema["$defs"]["RecoveryModel"]["properties"]
    assert recovery["cpuCap"]["default"] == 80 and recovery["cpuCap"]["maximum"] == 100
    undescribed = [
        f"{model.__name__}.{name}"
        for model in _models(Closed)[1:]
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert undescribed == []
