"""What a shell may complete: names that are there; and whatever is wrong, nothing is raised and nothing is suggested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from reprise.controller.cli import complete, target_kubernetes
from reprise.controller.kubernetes.errors import OperatorError


def suggested(
    completer: complete.Completer, begun: str = "", parameter: str = "x", **given: Any
) -> list[str]:
    context = click.Context(click.Command("c"))
    context.params = given
    return [item.value for item in completer(context, click.Option([f"--{parameter}"]), begun)]


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
