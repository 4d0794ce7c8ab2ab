"""What pods get of `spec.kubernetes`: sizes that follow from what else is said, and what stands above what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reprise.spark_jobs.topology.pod_settings import (
    EXECUTOR_DISK,
    EXECUTOR_OVERHEAD,
    STATE_DISK,
    kubernetes_settings,
    other_disk,
    state_disk,
)
from reprise.spark_jobs.topology.quantity import parse_bytes
from reprise.spark_jobs.topology.schema import SpecModel
from tests.support.topologies import minimal

MI, GI = 1 << 20, 1 << 30
SPEC = json.loads(minimal().document)["spec"]


def spec(**parts: dict[str, Any]) -> SpecModel:
    """The smallest example with other values in these parts."""
    return SpecModel.model_validate(
        {**SPEC, **{part: {**SPEC.get(part, {}), **v} for part, v in parts.items()}}
    )


def test_an_executor_has_memory_for_all_that_runs_in_it() -> None:
    sizes: dict[str, Any] = {"spark": {"executorMemory": "1Gi"}, "recovery": {"bufferMemory": "256Mi"}}
    without = kubernetes_settings(spec(**sizes))
    assert without.executor_memory_bytes == GI + 256 * MI + EXECUTOR_OVERHEAD
    bounded = kubernetes_settings(spec(**sizes, checkpoint={"stateMemory": "512Mi"}))
    assert bounded.executor_memory_bytes == without.executor_memory_bytes + 512 * MI
    said = kubernetes_settings(spec(**sizes, kubernetes={"executor": {"memory": "3Gi"}}))
    assert said.executor_memory_bytes == 3 * GI, "what is said counts as it is"


def test_states_have_no_disk_where_their_memory_has_no_limit() -> None:
    assert state_disk(spec()) == 0
    assert state_disk(spec(checkpoint={"stateMemory": "1Gi"})) == parse_bytes(STATE_DISK)
    assert state_disk(spec(checkpoint={"stateMemory": "1Gi", "stateDisk": "20Gi"})) == 20 * GI


def test_an_executor_has_disk_for_spilled_output_states_and_copies() -> None:
    parts: dict[str, Any] = {
        "recovery": {"bufferDisk": "1Gi"},
        "checkpoint": {"localCopies": "3Gi", "stateMemory": "1Gi", "stateDisk": "5Gi"},
    }
    assert other_disk(spec(**parts)) == 6 * GI + EXECUTOR_DISK
    assert kubernetes_settings(spec(**parts)).executor_storage_bytes == 9 * GI + EXECUTOR_DISK
    said = spec(**parts, kubernetes={"executor": {"storage": "7Gi"}})
    assert kubernetes_settings(said).executor_storage_bytes == 7 * GI


def test_a_secret_is_mounted_for_reading_alone() -> None:
    volumes = [
        {"claim": "data", "mountPath": "/data"},
        {"claim": "words", "mountPath": "/words", "readOnly": True},
        {"secret": "key", "mountPath": "/key"},
    ]
    found = kubernetes_settings(spec(kubernetes={"volumes": volumes})).volumes
    assert [(v.claim, v.secret, v.read_only) for v in found] == [
        ("data", "", False), ("words", "", True), ("", "key", True),
    ]  # fmt: skip


def test_a_variable_of_a_secret_has_no_value_of_its_own() -> None:
    reference = {"secretKeyRef": {"name": "s", "key": "k"}}
    both = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": reference}, {"name": "C"}]
    with pytest.raises(ValueError, match="env"):
        spec(kubernetes={"env": both})
    found = kubernetes_settings(
        spec(kubernetes={"env": both[:2], "driver": {"env": [{"name": "B", "value": "2"}]}})
    )
    assert [(v.name, v.value, v.secret, v.key) for v in found.executor.env] == [
        ("A", "1", "", ""),
        ("B", "", "s", "k"),
    ]
    assert [(v.name, v.value, v.secret) for v in found.driver.env] == [("A", "1", ""), ("B", "2", "")]
