"""Seconds of a recovery: what was measured counts, what was not is assumed and named."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reprise.algorithms.recovery_time import (
    BYTES_S,
    DETECTION_S,
    INSTALL_S,
    PLAN_S,
    ROWS_S,
    Overhead,
    RestoreWork,
    derive,
)
from reprise.controller.zookeeper.node_record import SESSION_S


def test_what_every_recovery_takes_is_measured_part_by_part() -> None:
    assert Overhead.of({}) == Overhead(DETECTION_S, PLAN_S, INSTALL_S, ("plan", "install"))
    found = Overhead.of({"detection": 10.0, "plan": 0.5})
    assert found == Overhead(10.0, 0.5, INSTALL_S, ("install",))
    assert found.seconds == 10.5 + INSTALL_S
    assert Overhead.of({"plan": 0.5, "install": 0.25}).assumed == ()


def test_a_node_is_missed_as_soon_as_the_session_of_its_agent_has_ended() -> None:
    assert DETECTION_S == SESSION_S, "one number in two packages of which neither may import the other"


@pytest.mark.parametrize(
    ("work", "load_s", "replay_s", "assumed"),
    [
        (RestoreWork(500, 100.0, 50.0), 2.0, 5.0, ()),
        (RestoreWork(500, None, 50.0), 2.0, 500 / ROWS_S, ("replay",)),
        (RestoreWork(500, 100.0), 100 / BYTES_S, 5.0, ("load",)),
        (RestoreWork(500), 100 / BYTES_S, 500 / ROWS_S, ("load", "replay")),
        (RestoreWork(0), 100 / BYTES_S, 0.0, ("load",)),
    ],
)
def test_seconds_rest_on_rates(
    work: RestoreWork, load_s: float, replay_s: float, assumed: tuple[str, ...]
) -> None:
    assert (work.load_s(100), work.replay_s) == pytest.approx((load_s, replay_s))
    assert work.assumed(100) == assumed
    assert work.load_s(0) == 0 and "load" not in work.assumed(0), "who has no state reads none"


SECONDS = st.floats(0.0, 600.0)
RATES = st.floats(1.0, 1e7)
COUNTS = st.integers(0, 10**7)


@given(SECONDS, RATES, RATES, COUNTS, COUNTS)
def test_what_is_derived_holds_where_it_says_so_and_uses_what_there_is(
    within_s: float, slots_s: float, rows_s: float, open_slots: int, between: int
) -> None:
    aim = derive(within_s, slots_s, rows_s, open_slots, between)
    assert aim.extent >= max(1, open_slots) and aim.replay >= 1
    took = aim.extent / slots_s + (aim.replay + between) / rows_s
    step = 1 / slots_s + 1 / rows_s  # one of each at least, and whole ones
    if aim.holds:
        assert took <= within_s + step + 1e-6
        assert took >= within_s - step - 1e-6, "more slots would be stored again than need be"
    else:
        assert open_slots / slots_s + between / rows_s > within_s, "nothing could hold it"
        assert (aim.extent, aim.replay) == (max(1, open_slots), 1)


@given(
    SECONDS, RATES, RATES, COUNTS, COUNTS, st.floats(1.0, 100.0), st.sampled_from(["within", "slots", "rows"])
)
def test_more_time_and_greater_rates_allow_more_of_both(
    within_s: float, slots_s: float, rows_s: float, open_slots: int, between: int, factor: float, more: str
) -> None:
    before = derive(within_s, slots_s, rows_s, open_slots, between)
    given_more = {"within": within_s, "slots": slots_s, "rows": rows_s}
    given_more[more] *= factor
    assume(given_more[more] < 1e9)
    after = derive(given_more["within"], given_more["slots"], given_more["rows"], open_slots, between)
    assert after.extent >= before.extent and after.replay >= before.replay
    assert after.holds or not before.holds


@given(SECONDS, RATES, RATES, COUNTS, COUNTS, st.integers(0, 10**6))
def test_rows_that_come_before_the_log_is_stored_leave_less_to_keep(
    within_s: float, slots_s: float, rows_s: float, open_slots: int, between: int, more: int
) -> None:
    before = derive(within_s, slots_s, rows_s, open_slots, between)
    after = derive(within_s, slots_s, rows_s, open_slots, between + more)
    assert after.extent <= before.extent and after.replay <= before.replay
