"""Queries in a terminal: one order of columns, one colour a state with its word beside it, and a line for the rest."""

from __future__ import annotations

from reprise.controller.cli.queries_table import BY_NEED, STYLES, rest_line, state_text
from reprise.controller.status.query_state import Status


def test_every_state_has_a_colour_and_a_place() -> None:
    assert set(STYLES) == set(BY_NEED) == set(Status)
    for state in Status:
        assert (state_text(state).plain, state_text(state).style) == (state.value, STYLES[state])


def test_what_is_most_in_need_is_counted_first_and_what_there_is_none_of_is_left_out() -> None:
    states = [Status.AVAILABLE, Status.WAITING, Status.AVAILABLE]
    assert rest_line(states).plain == "and 3 more: 1 waiting, 2 available"
