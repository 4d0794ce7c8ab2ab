"""What the page of a topology is drawn from: the document with what comes next, refused specs, and how old it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from reprise.controller.analysis.upcoming import upcoming
from reprise.controller.status import StatusDocument, document, plain
from reprise.controller.topology_view import with_promises
from reprise.controller.web import Board
from reprise.controller.web.board import Rendered
from tests.web import moments

KEY = ("default", "one")
LOOK = moments.of(moments.eight_of_ten(moments.topology2()))


def page(board: Board) -> Any:
    made = board.page(KEY)
    return None if made is None else json.loads(made.body)


def test_the_page_has_the_document_and_what_comes_next() -> None:
    board = Board(lambda: 0.0)
    assert page(board) is None and board.age(KEY) is None
    board.show(*KEY, *LOOK)
    told, made = page(board), board.document(KEY)
    assert made is not None and told["document"] == json.loads(made.body) and told["refused"] == ""
    expected = plain(upcoming(document(with_promises(LOOK[0]), LOOK[1])))
    assert told["upcoming"] == json.loads(json.dumps(expected)) and len(expected) == 9


def test_a_refused_spec_is_there_with_its_reason_alone_or_beside_what_was_seen() -> None:
    board = Board(lambda: 0.0)
    board.refuse(*KEY, "")
    assert page(board) is None, "a spec that is taken makes no page"
    board.refuse(*KEY, "spec.x: no")
    assert page(board) == {"document": None, "upcoming": [], "refused": "spec.x: no"}
    assert board.document(KEY) is None and board.records(KEY) is None
    (item,) = json.loads(board.listing().body)["items"]
    assert item == {"namespace": "default", "name": "one", "phase": "refused", "refused": "spec.x: no"}
    board.refuse(*KEY, "spec.y: no")
    assert page(board)["refused"] == "spec.y: no"
    board = Board(lambda: 0.0)
    board.show(*KEY, *LOOK)
    before = board.version(KEY)
    board.refuse(*KEY, "spec.x: no")
    assert board.version(KEY) != before
    assert page(board)["refused"] == "spec.x: no" and page(board)["document"] is not None
    board.refuse(*KEY, "")
    assert page(board)["refused"] == ""


def test_its_age_grows_while_nobody_looks_and_a_refusal_is_no_look() -> None:
    now = [10.0]
    board = Board(lambda: now[0])
    board.show(*KEY, *LOOK)
    now[0] = 80.0
    board.refuse(*KEY, "spec.x: no")
    assert board.age(KEY) == 70.0
    board.show(*KEY, *LOOK)
    assert board.age(KEY) == 0.0


def test_the_list_makes_no_page_and_what_a_page_takes_counts_for_when_it_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, pages = [0.0], [0]

    def slow(found: StatusDocument) -> Any:
        now[0] += 0.2
        pages[0] += 1
        return upcoming(found)

    monkeypatch.setattr("reprise.controller.web.board.upcoming", slow)
    monkeypatch.setattr(
        "reprise.controller.web.board.Rendered.of_bytes", counted := Counted(Rendered.of_bytes)
    )
    board = Board(lambda: now[0])
    board.show(*KEY, *LOOK)
    (item,) = json.loads(board.listing().body)["items"]
    assert (pages[0], counted.calls) == (0, 1), "the list alone was written and packed"
    said = json.loads(board.document(KEY).body)  # type: ignore[union-attr]
    assert item["queries"] == {name: said["queries"][name] for name in item["queries"]}
    assert item["incident"] == {name: said["incident"][name] for name in item["incident"]}
    assert all(item[name] == said[name] for name in ("phase", "time", "batch", "connected"))
    assert board.page(KEY) is board.page(KEY) and pages[0] == 1
    first = board.version(KEY)
    board.show(*KEY, *LOOK)
    for seconds, news in ((1.99, False), (0.02, True)):
        now[0] += seconds
        assert (board.version(KEY) != first) is news, "ten times the 0.2 s that the page took"


class Counted:
    """A function, and how often it was called."""

    def __init__(self, function: Callable[[bytes], Rendered]) -> None:
        self.calls, self._function = 0, function

    def __call__(self, body: bytes) -> Rendered:
        self.calls += 1
        return self._function(body)
