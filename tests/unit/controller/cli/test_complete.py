"""What a shell may complete: names that are there; and whatever is wrong, nothing is raised and nothing is suggested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from reprise.algorithms import ALGORITHMS
from reprise.controller.cli import complete, target_kubernetes
from reprise.controller.kubernetes.errors import OperatorError
from tests.support import oncall

RESOURCE = oncall.resource()
QUERIES = ["count.0", "count.1", "count.2", "count.3"]


def suggested(
    completer: complete.Completer, begun: str = "", parameter: str = "x", **given: Any
) -> list[str]:
    context = click.Context(click.Command("c"))
    context.params = given
    return [item.value for item in completer(context, click.Option([f"--{parameter}"]), begun)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "topology.json").write_text(RESOURCE.document)
    (tmp_path / "plans.json").write_text(
        json.dumps({"incidents": [{"id": "inc-000012"}, {"id": "inc-000003"}]})
    )
    return tmp_path


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The topologies of the namespace, which a test may change."""
    body = json.loads(RESOURCE.document)
    found = [{**body, "metadata": {**body["metadata"], "name": name}} for name in ("oncall", "other")]
    monkeypatch.setattr(target_kubernetes, "listed", lambda address, everywhere: found)
    return found


def test_the_names_in_the_folder_of_a_run(run: Path) -> None:
    assert suggested(complete.queries, out=str(run)) == QUERIES
    assert suggested(complete.queries, "count.2", out=str(run)) == ["count.2"]
    assert suggested(complete.incidents, out=str(run)) == ["inc-000003", "inc-000012"]
    assert suggested(complete.nodes, out=str(run)) == ["n1", "n2", "n3"]
    assert suggested(complete.topologies, out=str(run)) == [], "it is named already"


def test_the_queries_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(oncall.TEXT)
    assert suggested(complete.queries, file=file) == QUERIES


def test_of_several_names_with_commas_the_last_is_completed(run: Path) -> None:
    assert suggested(complete.nodes, "n1,n", "lose", out=str(run)) == ["n1,n1", "n1,n2", "n1,n3"]
    assert suggested(complete.nodes, "n1,n", "node", out=str(run)) == [], (
        "elsewhere a comma is a part of the name"
    )


def test_planners_are_those_that_are_registered() -> None:
    assert suggested(complete.planners) == sorted(ALGORITHMS)


def test_on_kubernetes_names_of_topologies_and_of_their_queries(cluster: list[dict[str, Any]]) -> None:
    assert suggested(complete.topologies) == ["oncall", "other"]
    assert suggested(complete.queries) == ["oncall", "other"], "which one is meant is not said"
    assert suggested(complete.queries, words=("other",)) == QUERIES
    assert suggested(complete.queries, words=("nobody",)) == []
    del cluster[1]
    assert suggested(complete.queries) == [*QUERIES, "oncall"], "the name of the only one can be left out"


@pytest.mark.parametrize("completer", [complete.queries, complete.incidents, complete.nodes])
@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b'{"incidents": [{}]}'])
def test_a_file_that_is_not_there_or_is_damaged_gives_nothing(
    completer: complete.Completer, content: bytes | None, tmp_path: Path
) -> None:
    for name in ("topology.json", "plans.json"):
        if content is not None:
            (tmp_path / name).write_bytes(content)
    assert suggested(completer, out=str(tmp_path)) == []


def test_a_cluster_that_does_not_answer_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OperatorError("no answer")

    monkeypatch.setattr(target_kubernetes, "listed", refused)
    assert suggested(complete.topologies) == []
    assert suggested(complete.queries) == []
