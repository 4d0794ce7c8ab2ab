"""Resources and checkpoints that were written before there was one import root."""

from __future__ import annotations

import importlib

import pytest

from reprise.controller.topology_view import silent_operators, view_of
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import KeyedCount
from reprise.spark_jobs.state.revision import former_revision_of, revision_of
from reprise.spark_jobs.topology import from_json, load_text, make_operator, override, to_json
from reprise.spark_jobs.topology.binding import resolve
from reprise.spark_jobs.topology.class_path import PUBLIC, current, former, of_library, public

TODAY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: words}
spec:
  batch: {interval: 100ms}
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
       with: {rate: 10, interval: 100ms, batches: 4, tags: 10}}
  operators:
    - {name: count, class: "reprise.spark_jobs.operators:KeyedCount",
       with: {keys: [tweet]}, inputs: [{from: tweets, by: [tweet]}]}
    - {name: out, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: count}], output: {}}
"""
FORMER = TODAY.replace('"reprise.spark_jobs.', '"spark_jobs.')
PUBLIC_NAMES = TODAY.replace('"reprise.spark_jobs.', '"reprise.')
REVISION = "93fbda5c4a24"
"""What the version before the import root computed of FORMER, and wrote beside its checkpoints."""
STANDBY = {"every": 3, "failureDomain": "zone"}
REVISION_WITH_STANDBY = "3a3a4cac56a4"
"""The same of the last version in which `standby` was a part of it, where `count` has STANDBY."""


def test_a_resource_in_the_former_spelling_is_the_same_topology() -> None:
    today, before, best = load_text(TODAY), load_text(FORMER), load_text(PUBLIC_NAMES)
    assert type(make_operator(best.operators[0])) is KeyedCount
    assert view_of(best, own_code=False) == view_of(today, own_code=False)
    assert before.operators[0].class_path == "spark_jobs.operators:KeyedCount"
    assert type(make_operator(before.operators[0])) is type(make_operator(today.operators[0])) is KeyedCount
    assert view_of(before, own_code=False) == view_of(today, own_code=False)
    assert view_of(before, own_code=False).deterministic and silent_operators(before) == ()
    assert type(make_operator(from_json(to_json(before)).operators[0])) is KeyedCount


def test_a_stream_goes_on_from_the_checkpoints_of_the_version_before_in_either_spelling() -> None:
    assert revision_of(load_text(FORMER)) == REVISION
    assert revision_of(load_text(TODAY)) == REVISION
    assert revision_of(load_text(PUBLIC_NAMES)) == REVISION
    other = TODAY.replace("spark_jobs.operators:Sink", "spark_jobs.operators:Filter").replace(
        "output: {}}", 'output: {}, with: {where: "tweet > 0"}}'
    )
    assert revision_of(load_text(other, data=False)) != REVISION


def test_a_stream_with_standbys_is_known_by_what_the_version_before_wrote() -> None:
    passive = {"operators[count].availability": "passive-standby"}
    before = override(load_text(TODAY), passive | {"operators[count].standby": STANDBY})
    assert (former_revision_of(before), revision_of(before)) == (REVISION_WITH_STANDBY, REVISION)
    assert former_revision_of(load_text(TODAY)) == REVISION


@pytest.mark.parametrize(
    "path", ["my_operators:Mine", "my.spark_jobs.operators:Mine", "spark_jobs_of_mine:Mine", "reprise.mine:X"]
)
def test_classes_of_others_are_left_as_they_are(path: str) -> None:
    assert current(path) == former(path) == public(path) == path
    assert not of_library(path)


def test_what_is_missing_is_named_as_it_is_called_today() -> None:
    with pytest.raises(ValueError, match=r"'reprise\.spark_jobs\.operator'"):
        resolve("spark_jobs.operator:KeyedCount")
    with pytest.raises(SpecError, match="KeyedCount"):
        load_text(FORMER.replace("operators:KeyedCount", "operators:KeyedCuont"))


@pytest.mark.parametrize("text", [TODAY, FORMER, PUBLIC_NAMES])
def test_no_password_is_taken_in_either_spelling(text: str) -> None:
    with pytest.raises(SpecError, match="password"):
        load_text(text.replace("keys: [tweet]", 'keys: ["https://me:hunter2@host/x"]'))


@pytest.mark.parametrize(
    "path", ["spark_jobs.operators:Map", "reprise.spark_jobs.operators:Map", "reprise.operators:Map"]
)
def test_every_spelling_is_answered_with_the_public_name(path: str) -> None:
    assert public(path) == "reprise.operators:Map"
    assert current(path) == "reprise.spark_jobs.operators:Map"
    assert former(path) == "spark_jobs.operators:Map"
    assert of_library(path)


def test_what_is_in_no_public_module_keeps_its_name() -> None:
    assert public("spark_jobs.operators.keyed:KeyedCount") == "reprise.spark_jobs.operators.keyed:KeyedCount"


@pytest.mark.parametrize("module", sorted({*PUBLIC, "reprise.testing"}))
def test_a_public_module_has_what_it_lists(module: str) -> None:
    public_module = importlib.import_module(module)
    assert len(set(public_module.__all__)) == len(public_module.__all__) > 0
    for name in public_module.__all__:
        assert getattr(public_module, name) is not None


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_a_public_module_has_all_that_resources_may_name(module: str) -> None:
    """Whatever stands behind it, so that a class is not public in one spelling alone."""
    inner = importlib.import_module(PUBLIC[module])
    there = importlib.import_module(module)
    for name in getattr(inner, "__all__", []):
        assert getattr(there, name) is getattr(inner, name)
