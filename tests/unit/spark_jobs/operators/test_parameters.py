"""What operators' parameters may be, and that every refusal names the parameter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.parameters import choice, duration_us, names, whole

anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text() | st.integers())
)


@pytest.mark.parametrize(
    ("value", "least", "reason"),
    [
        (None, 0, "expected column names as text, found None"),
        (5, 0, "expected column names as text, found 5"),
        ({"a": 1}, 0, "expected column names as text"),
        ([""], 0, "expected column names as text"),
        ("", 0, "expected column names as text"),
        (["a", 1], 0, "expected column names as text"),
        ([], 1, "needs at least 1 column name$"),
        (["a"], 2, "needs at least 2 column names$"),
        (["a", "b", "a"], 0, "column name 'a' is there twice"),
    ],
)
def test_what_is_no_list_of_columns_is_refused(value: Any, least: int, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as caught:
        names(value, "keys", least)
    assert caught.value.field == "keys"


def test_one_name_may_stand_alone_and_order_is_kept() -> None:
    assert names("delay", "keys", 1) == ("delay",)
    assert names(["b", "a"], "keys", 2) == ("b", "a")
    assert names([], "keys") == ()


@pytest.mark.parametrize(
    ("value", "least", "reason"),
    [
        ("0s", 1, "'0s' is too short"),
        ("400ns", 1, "'400ns' is too short"),
        ("-1s", 0, "is not a duration"),
        (5, 0, "'5' is not a duration"),
        ("110000000d", 1, "'110000000d' is too long"),
        (None, 0, "'None' is not a duration"),
        ("1s ", 0, "is not a duration"),
        ("1s\n", 0, "is not a duration"),
    ],
)
def test_what_is_no_duration_is_refused(value: Any, least: int, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as caught:
        duration_us(value, "size", least)
    assert caught.value.field == "size"


def test_a_duration_of_the_least_length_is_taken() -> None:
    assert duration_us("1us", "size") == 1
    assert duration_us("0s", "lateness", least=0) == 0
    assert duration_us("1h30m0.5s", "size") == 5_400_500_000


@pytest.mark.parametrize("value", [True, False, 0, 1.0, "1", None, -3])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=f"expected an integer of at least 1, found {value!r}") as caught:
        whole(value, "k")
    assert caught.value.field == "k"


def test_a_word_that_is_nearly_right_is_told_the_right_one() -> None:
    assert choice("final", "emit", ("final", "updates")) == "final"
    with pytest.raises(SpecError, match=r"'update' is not one of its values.*updates") as caught:
        choice("update", "emit", ("final", "updates"))
    assert caught.value.field == "emit"


@given(anything)
def test_whatever_is_given_is_taken_or_refused_with_the_field(value: Any) -> None:
    for check in (names, duration_us, whole, lambda v, f: choice(v, f, ("a", "b"))):
        try:
            check(value, "field")
        except SpecError as error:
            assert error.field == "field"
