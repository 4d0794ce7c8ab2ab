"""Rules over several fields: each stands at a place that there is, and is short enough for a server to take."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.controller.crd.crds import KINDS, schema
from reprise.controller.crd.crds import at as part_at
from reprise.controller.crd.rules import INCIDENT, LIST_KEYS, PLAN, TOPOLOGY, Rule
from reprise.spark_jobs.topology import kubernetes as pods
from reprise.spark_jobs.topology.limits import MAX_PARTITIONS

RULES = {"StreamTopology": TOPOLOGY, "Incident": INCIDENT, "RecoveryPlan": PLAN}
SCHEMAS = {kind.kind: schema(kind) for kind in KINDS}
EACH = [
    (kind, path, rule) for kind, places in RULES.items() for path, rules in places.items() for rule in rules
]


def at(kind: str, path: str) -> dict[str, Any]:
    """The schema at a place.  KeyError: there is none."""
    return part_at(SCHEMAS[kind], path)


@pytest.mark.parametrize(("kind", "path", "rule"), EACH)
def test_each_rule_stands_in_the_definition_where_it_says(kind: str, path: str, rule: Rule) -> None:
    assert rule.as_object() in at(kind, path)["x-kubernetes-validations"]


@pytest.mark.parametrize(("kind", "path", "rule"), EACH)
def test_a_rule_is_one_line_with_balanced_brackets_and_says_what_is_wrong(
    kind: str, path: str, rule: Rule
) -> None:
    text = rule.as_object()["rule"]
    assert "\n" not in text and "  " not in text
    assert text.count("(") == text.count(")") and text.count("[") == text.count("]")
    assert 0 < len(rule.message) <= 2048


def test_what_may_not_change_is_said_at_the_root_where_the_status_is_seen() -> None:
    for kind, path, rule in EACH:
        if "oldSelf.status" in rule.rule:
            assert (kind, path) == ("StreamTopology", ""), rule.message


def test_records_of_what_happened_do_not_change() -> None:
    for places in (INCIDENT, PLAN):
        assert any(rule.rule == "self == oldSelf" for rule in places["spec"])


def test_limits_and_reserved_names_are_those_of_the_model() -> None:
    text = " ".join(rule.rule for rule in TOPOLOGY["spec"])
    assert f"<= {MAX_PARTITIONS}" in text
    both = " ".join(rule.rule for rule in TOPOLOGY["spec.kubernetes"])
    for prefix in (*pods.RESERVED_LABELS, *pods.RESERVED_ANNOTATIONS):
        assert f"name.startsWith('{prefix}')" in both


@pytest.mark.parametrize("path", LIST_KEYS)
def test_lists_merge_by_keys_that_every_item_has(path: str) -> None:
    found = at("StreamTopology", path)
    assert found["x-kubernetes-list-map-keys"] == LIST_KEYS[path]
    assert found["x-kubernetes-list-type"] == "map"
    assert set(LIST_KEYS[path]) <= set(found["items"]["required"])
