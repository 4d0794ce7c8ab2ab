"""Rows that are dealt to source partitions in turn: who has how many, and where other partitions go on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range, SourcePart
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sources.dealing import dealt_again, share
from tests.support.examples import examples

NUMBERS = st.integers(1, 9)


def shares(rows: int, parallelism: int) -> list[int]:
    return [share(rows, Place("s", index, parallelism)) for index in range(parallelism)]


def parts(*read: int) -> list[SourcePart]:
    return [SourcePart(Range(0, end)) for end in read]


@examples(40)
@given(st.integers(0, 60), NUMBERS)
def test_row_i_belongs_to_partition_i_mod_parallelism(rows: int, parallelism: int) -> None:
    assert shares(rows, parallelism) == [len(range(index, rows, parallelism)) for index in range(parallelism)]


@examples(40)
@given(st.integers(0, 60), NUMBERS, NUMBERS)
def test_any_number_of_partitions_goes_on_behind_the_same_rows(rows: int, before: int, after: int) -> None:
    found = dealt_again("s", parts(*shares(rows, before)), after)
    assert [part.upto for part in found] == [Range(n, n) for n in shares(rows, after)]
    assert dealt_again("s", found, before) == dealt_again("s", parts(*shares(rows, before)), before)


@pytest.mark.parametrize("read", [(0, 1), (3, 1), (2, 3), (5, 5, 7)])
def test_what_are_not_the_first_rows_is_refused(read: tuple[int, ...]) -> None:
    with pytest.raises(SpecError) as refused:
        dealt_again("s", parts(*read), 2)
    assert refused.value.field == "parallelism"
    said = ", ".join(map(str, read))
    assert refused.value.reason.startswith(
        f"its partitions have read {said} rows, dealt in turn: these are not the first {sum(read)}"
    )
