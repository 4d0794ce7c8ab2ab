"""What a change of each field does: the table names every field, agrees with the record of revisions and with the rules of
API servers, and what takes effect in place is one checked topology."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import StreamTopology, from_object, override
from reprise.spark_jobs.topology.change_table import TABLE, Effect, row_of
from reprise.spark_jobs.topology.changes import (
    changes,
    in_effect,
    revision_of_settings,
    settings_of,
    without_settings,
)
from reprise.spark_jobs.topology.schema import json_schema

FREE = ("affinity", "tolerations", "securityContext", "env", "volumes", "topologySpreadConstraints")
"""Parts of a pod for which one row speaks."""


def spec() -> dict[str, Any]:
    """A topology in which every part is there."""
    return {
        "sources": [{"name": "words", "class": "reprise.sources:HashtagSource", "with": {"batches": 9}}],
        "operators": [
            {
                "name": "count",
                "class": "reprise.operators:KeyedCount",
                "parallelism": 2,
                "with": {"keys": ["tag"]},
                "inputs": [{"from": "words", "by": ["tag"]}],
                "output": {"priority": 3, "priorities": {"1": 7}},
            },
            {"name": "pass", "class": "reprise.operators:Map", "inputs": [{"from": "count"}]},
        ],
        "checkpoint": {"everyBatches": 5},
    }


def topology(**parts: Any) -> StreamTopology:
    return from_object(
        {
            "apiVersion": "reprise.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": "t"},
            "spec": {**spec(), **parts},
        }
    )


def fields_of(schema: dict[str, Any], node: dict[str, Any], path: str) -> Iterator[str]:
    """Leaves of the resource, as the table writes them."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].split("/")[-1]]
    parts = [one for one in node.get("anyOf", []) if "$ref" in one or "items" in one]
    if parts:
        yield from fields_of(schema, parts[0], path)
    elif "properties" in node:
        for name, child in node["properties"].items():
            yield from fields_of(schema, child, f"{path}.{name}".lstrip("."))
    elif node.get("type") == "array" and "$ref" in node["items"] and not path.endswith(FREE):
        yield from fields_of(schema, node["items"], f"{path}[]")
    else:
        yield path


def all_fields() -> list[str]:
    schema = json_schema()
    found = fields_of(schema, schema, "")
    return [path.removeprefix("spec.") for path in found if path not in ("apiVersion", "kind")]


def test_every_field_of_the_resource_has_a_row_of_its_own() -> None:
    rows = {row.path for row in TABLE}
    for path in all_fields():
        whole = path.split(".")
        free = next((i for i, name in enumerate(whole) if name.removesuffix("[]") in FREE), None)
        named = path if free is None else ".".join([*whole[:free], whole[free].removesuffix("[]")])
        assert named in rows, f"{path}: what a change of it does is not in change_table"


def test_no_row_speaks_of_a_field_that_is_not_there_and_none_speaks_twice() -> None:
    fields = [path.replace("[]", "") for path in all_fields()]
    for row in TABLE:
        place = row.path.replace("[secret]", "").replace("[]", "")
        parents = any(field == place or field.startswith(f"{place}.") for field in fields)
        assert parents or any(place.startswith(field) and field.endswith(FREE) for field in fields), row.path
    assert len({row.path for row in TABLE}) == len(TABLE)
    assert all(row.reason for row in TABLE)


def test_a_field_below_a_row_is_spoken_for_by_it_and_an_unknown_one_by_none() -> None:
    assert row_of("sources[].with.rate]x").path == "sources[].with"
    assert row_of("kubernetes.executor.env[].value").effect is Effect.DRAIN
    with pytest.raises(KeyError):
        row_of("wishes")


CHANGED: list[tuple[str, Any]] = [
    ("sources[words].class", "reprise.sources:NexmarkSource"),
    ("sources[words].with", {"batches": 10}),
    ("sources[words].resources", {"cpu": "70m"}),
    ("operators[count].class", "reprise.operators:Other"),
    ("operators[count].with", {"keys": ["time"]}),
    ("operators[count].resources", {"cpu": "70m"}),
    ("operators[count].deterministic", True),
    ("operators[count].availability", "amnesia"),
    ("operators[count].standby.every", 7),
    ("operators[count].standby.failureDomain", "zone"),
    ("operators[count].checkpoint", {"interval": "3s"}),
    ("operators[count].output.priority", 9),
    ("operators[count].output.priorities", {"0": 9}),
    ("operators[count].output.format", "parquet"),
    ("operators[count].output.sink", {"class": "reprise.kafka:KafkaSink", "with": {}}),
    ("operators[count].output.recovery", {"objective": "3s"}),
    ("operators[count].output", None),
    ("batch.interval", "2s"),
    ("batch.order", "arrival"),
    ("sink.location", "/out"),
    ("checkpoint.everyBatches", 6),
    ("checkpoint.keep", 6),
    ("checkpoint.jitter", 6),
    ("checkpoint.protocol", "uncoordinated"),
    ("checkpoint.log", "memory"),
    ("checkpoint.state", "paged"),
    ("checkpoint.standby", ["/b"]),
    ("checkpoint.localCopies", "1Gi"),
    ("recovery.strategy", "blocking"),
    ("recovery.order", "strict"),
    ("recovery.scope", "global"),
    ("recovery.mode", "recommend"),
    ("recovery.correlatedNodes", 3),
    ("recovery.window", "9s"),
    ("recovery.cpuCap", 90),
    ("recovery.algorithm", "ilp"),
    ("recovery.timeLimit", "9s"),
    ("recovery.bufferMemory", "9Mi"),
    ("recovery.bufferDisk", "9Mi"),
    ("recovery.driverGrace", "9s"),
    ("spark.executorMemory", "1Gi"),
    ("spark.exchange", "chained"),
    ("spark.conf", {"a": "b"}),
    ("nodes.count", 9),
    ("nodes.cpu", "9"),
    ("paused", True),
    ("upgrade", "replay"),
    ("kubernetes.secrets", ["s"]),
    ("kubernetes.env", [{"name": "A", "value": "b"}]),
    ("kubernetes.driver.env", [{"name": "A", "value": "b"}]),
    ("kubernetes.volumes", [{"secret": "s", "mountPath": "/s"}]),
    ("kubernetes.volumes", [{"claim": "s", "mountPath": "/s"}]),
    ("kubernetes.code", {"configMap": "c", "sha256": "0" * 64}),
]


@pytest.mark.parametrize(("path", "value"), CHANGED)
def test_the_table_asks_for_a_drain_exactly_where_another_revision_makes_batches(
    path: str, value: Any
) -> None:
    before = topology()
    after = override(before, {path: value})
    found = changes(before, after)
    assert found, path
    another = revision_of(before, "image") != revision_of(after, "image")
    assert any(change.effect is Effect.DRAIN for change in found) == another
    same_driver = without_settings(before) == without_settings(after)
    assert all(change.effect.in_place for change in found) == same_driver


@pytest.mark.parametrize(
    ("before", "after", "effects"),
    [
        ({"every": 3}, {"every": 7}, {"every": Effect.RESTART}),
        ({"every": 3}, None, {"every": Effect.RESTART}),
        ({"failureDomain": "zone"}, {"failureDomain": "rack"}, {"failureDomain": Effect.AT_ONCE}),
        ({"every": 3, "failureDomain": "zone"}, {"every": 3}, {"failureDomain": Effect.AT_ONCE}),
        ({"failureDomain": "zone"}, None, {"failureDomain": Effect.AT_ONCE}),
        ({}, None, {}),
        (
            {"failureDomain": "zone"},
            {"every": 3},
            {"every": Effect.RESTART, "failureDomain": Effect.AT_ONCE},
        ),
    ],
    ids=str,
)
def test_what_is_said_of_standbys_that_are_there_changes_no_batch(
    before: object, after: object, effects: dict[str, Effect]
) -> None:
    """Whether all of `standby` comes, goes or differs; and the label alone takes no other driver."""
    passive = override(topology(), {"operators[count].availability": "passive-standby"})
    one, other = (override(passive, {"operators[count].standby": said}) for said in (before, after))
    for old, new in ((one, other), (other, one)):
        found = {c.path.removeprefix("spec.operators[count].standby."): c.effect for c in changes(old, new)}
        assert found == effects
        assert revision_of(old, "image") == revision_of(new, "image")
        same_driver = without_settings(old) == without_settings(new)
        assert same_driver == all(effect.in_place for effect in effects.values())
        if same_driver:
            now = in_effect(old, settings_of(new)).operator("count")
            assert now.standby_every == new.operator("count").standby_every
            assert in_effect(old, settings_of(new)).standby_domain(now) == new.standby_domain(now)


def test_another_image_or_other_code_is_drained_for() -> None:
    before = override(topology(), {"kubernetes.code": {"configMap": "c", "sha256": "0" * 64}})
    image = changes(before, override(before, {"kubernetes.image": "x:2"}))
    code = changes(before, override(before, {"kubernetes.code": {"configMap": "c", "sha256": "1" * 64}}))
    other_place = override(before, {"kubernetes.code": {"configMap": "d", "sha256": "0" * 64}})
    assert [(c.path, c.effect) for c in image] == [("spec.kubernetes.image", Effect.DRAIN)]
    assert [(c.path, c.effect) for c in code] == [("spec.kubernetes.code.sha256", Effect.DRAIN)]
    assert [c.effect for c in changes(before, other_place)] == [Effect.RESTART]
    assert revision_of(before, "i") == revision_of(other_place, "i")


def test_changes_are_told_by_field_with_what_was_and_what_is_wanted() -> None:
    before = topology()
    after = override(
        before, {"operators[count].output.priorities": {"1": 9}, "sources[words].with": {"batches": 5}}
    )
    assert [(c.path, c.before, c.after) for c in changes(before, after)] == [
        ("spec.operators[count].output.priorities.1", 7, 9),
        ("spec.sources[words].with.batches", 9, 5),
    ]
    assert changes(before, before) == []


def test_a_query_that_is_added_or_removed_is_one_change_that_takes_a_drain() -> None:
    leaf = {"name": "leaf", "class": "reprise.operators:Map", "inputs": [{"from": "count"}], "output": {}}
    before = topology()
    after = topology(operators=[*spec()["operators"], leaf])
    for one, other in ((before, after), (after, before)):
        (change,) = changes(one, other)
        assert (change.path, change.effect) == ("spec.operators[leaf]", Effect.QUERIES)
        assert "added or removed" in change.reason


def test_an_operator_that_becomes_an_output_is_no_matter_of_priorities() -> None:
    before = topology()
    after = override(before, {"operators[pass].output": {"priority": 4}})
    (change,) = changes(before, after)
    assert (change.path, change.effect) == ("spec.operators[pass].output", Effect.DRAIN)


def test_settings_take_effect_together_and_nothing_else_does() -> None:
    started = topology()
    wanted = override(
        started,
        {
            "operators[count].output.priorities": {"0": 8},
            "operators[count].resources": {"cpu": "33m"},
            "checkpoint.everyBatches": None,
            "checkpoint.interval": "4s",
            "recovery.algorithm": "ilp",
            "sources[words].with": {"batches": 5},
        },
    )
    now = in_effect(started, settings_of(wanted))
    assert now.operator("count").output == wanted.operator("count").output
    assert now.operator("count").cpu_cores == pytest.approx(0.033)
    assert (now.checkpoint.interval_s, now.checkpoint.every_batches) == (4.0, None)
    assert now.recovery.algorithm == "ilp"
    assert now.source("words").parameters == {"batches": 9}
    assert in_effect(now, settings_of(wanted)) is now
    assert in_effect(now, settings_of(started)).document == started.document


def test_settings_that_need_a_field_that_waits_take_effect_with_it() -> None:
    """`scope: partition` goes with snapshots of single partitions, which the running driver does not take."""
    started = topology()
    wanted = override(
        started,
        {
            "checkpoint.protocol": "uncoordinated",
            "checkpoint.log": "checkpointed",
            "recovery.scope": "partition",
            "operators[count].output.priority": 9,
            "paused": True,
        },
    )
    now = in_effect(started, settings_of(wanted))
    assert now.paused
    assert now.recovery.scope == "auto"
    assert now.operator("count").output == started.operator("count").output


def test_settings_of_another_version_or_graph_do_no_harm() -> None:
    started = topology()
    strange = {
        "recovery.wish": 1,
        "operators[gone].output.priority": 3,
        "operators[pass].output.priority": 3,
        "recovery.cpuCap": "much",
    }
    assert in_effect(started, strange) is started
    assert in_effect(started, {**strange, "paused": True}).paused


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "operators[count].output.priority": st.integers(1, 10),
            "checkpoint.keep": st.integers(1, 9),
            "recovery.scope": st.sampled_from(["auto", "global", "ancestors", "partition"]),
            "nodes.count": st.integers(1, 9),
            "paused": st.booleans(),
        },
    )
)
def test_what_is_in_effect_differs_from_what_was_started_in_settings_alone(given_: dict[str, Any]) -> None:
    started = topology()
    now = in_effect(started, settings_of(override(started, given_)))
    assert without_settings(now) == without_settings(started)
    assert all(change.effect.in_place for change in changes(started, now))


def test_equal_settings_have_one_name() -> None:
    one, other = topology(), override(topology(), {"nodes.count": 9})
    assert revision_of_settings(settings_of(one)) == revision_of_settings(settings_of(other))
    third = override(one, {"recovery.cpuCap": 99})
    assert revision_of_settings(settings_of(one)) != revision_of_settings(settings_of(third))
    assert json.loads(json.dumps(settings_of(third))) == settings_of(third)
