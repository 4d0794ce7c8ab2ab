"""One topology is shown on the page and told to the API server; without a page the rest goes on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from reprise.controller.operator.status.display import TopologyDisplay
from reprise.controller.operator.status.reporter import StatusReporter
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.web import Board
from tests.support import oncall


class Reporter:
    def __init__(self) -> None:
        self.told: list[object] = []

    def tell(self, state: object) -> None:
        self.told.append(state)


def display(board: Board | None) -> tuple[TopologyDisplay, Reporter]:
    reporter = Reporter()
    return TopologyDisplay(cast(StatusReporter, reporter), board), reporter


def test_what_was_seen_is_on_the_page_at_once() -> None:
    board = Board()
    shown, reporter = display(board)
    resource, seen = oncall.resource(), oncall.steady()
    shown.page(resource, seen)
    assert board.document((resource.namespace, resource.name)) is not None
    assert reporter.told == [], "the API server hears of it in its own turn"


def test_a_spec_that_is_not_taken_is_shown_until_it_is() -> None:
    board = Board()
    shown, _ = display(board)
    resource = oncall.resource()
    shown.page(resource, oncall.steady())
    shown.refused(resource.namespace, resource.name, "no such field")
    assert "no such field" in board.listing().body.decode()
    shown.refused(resource.namespace, resource.name, "")
    assert "no such field" not in board.listing().body.decode()


def test_without_a_page_only_the_api_server_is_told() -> None:
    shown, reporter = display(None)
    shown.page(oncall.resource(), oncall.steady())
    shown.refused("default", "oncall", "why")
    state: Any = object()
    shown.tell(cast(TopologyState, state))
    assert reporter.told == [state]


@pytest.mark.parametrize("board", [None, Board()])
def test_what_is_told_is_what_was_given(board: Board | None) -> None:
    shown, reporter = display(board)
    state: Any = object()
    shown.tell(cast(TopologyState, state))
    assert reporter.told == [state]
