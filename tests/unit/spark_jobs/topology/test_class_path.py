"""Resources and checkpoints that were written before there was one import root."""

from __future__ import annotations

import importlib

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import load_text
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


def test_a_stream_goes_on_in_either_spelling_and_not_with_other_parameters() -> None:
    revisions = {revision_of(load_text(text)) for text in (TODAY, FORMER, PUBLIC_NAMES)}
    assert len(revisions) == 1
    assert (
        revision_of(load_text(TODAY.replace("with: {keys: [tweet]}", "with: {keys: [time]}")))
        not in revisions
    )


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
