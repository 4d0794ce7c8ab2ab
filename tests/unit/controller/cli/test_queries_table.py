"""Queries in a terminal: one order of columns, one colour a state with its word beside it, and a line for the rest."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from reprise.controller.cli.queries_table import BY_NEED, STYLES, empty_table, rest_line, state_text
from reprise.controller.status.query_state import Status


def shown(page: RenderableType, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(page)
    return file.getvalue()


def test_every_state_has_a_colour_and_a_place() -> None:
    assert set(STYLES) == set(BY_NEED) == set(Status)
    for state in Status:
        assert (state_text(state).plain, state_text(state).style) == (state.value, STYLES[state])


def test_what_is_most_in_need_is_counted_first_and_what_there_is_none_of_is_left_out() -> None:
    states = [Status.AVAILABLE, Status.WAITING, Status.AVAILABLE]
    assert rest_line(states).plain == "and 3 more: 1 waiting, 2 available"


def table(fold: bool) -> str:
    found = empty_table(["a-long-name-of-a-query.12", "b"], fold, more=("down for", "node"))
    found.add_row("b", "3", "0", state_text(Status.WAITING), "9s", "n1", "because " * 20)
    return shown(found, 120)


def test_a_long_reason_is_cut_or_takes_several_lines() -> None:
    cut, folded = table(False).splitlines(), table(True).splitlines()
    assert len(cut) == 2 and cut[1].rstrip().endswith("…")
    assert len(folded) > 2 and sum(line.count("because") for line in folded) == 20
    assert cut[0].split() == ["query", "priority", "lag", "state", "down", "for", "node", "why"]


def test_columns_are_as_wide_as_the_longest_name_also_without_it_in_view() -> None:
    line = table(False).splitlines()[1]
    assert line.index("3") > len("a-long-name-of-a-query.12")
    assert shown(empty_table([], True), 80).split() == ["query", "priority", "lag", "state", "why"]
