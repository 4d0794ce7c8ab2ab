"""The generator: the same rows however they are read, and the statistics of the data set it stands for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sources import END_OF_TIME, HashtagSource
from tests.support.examples import examples

P = Place("tweets", 0, 1)


@examples(30)
@given(st.integers(0, 5000), st.integers(0, 300), st.integers(0, 300), st.integers(0, 2))
def test_rows_do_not_depend_on_how_ranges_are_cut(start: int, first: int, second: int, index: int) -> None:
    source = HashtagSource(rate=1000, tags=1000, seed=7)
    place = Place("tweets", index, 3)
    whole = source.read(place, 1, Range(start, start + first + second))
    parts = [
        source.read(place, 1, Range(start, start + first)),
        source.read(place, 2, Range(start + first, start + first + second)),
    ]
    assert pa.concat_tables(parts).to_pylist() == whole.to_pylist()


def test_hashtags_are_those_of_the_data_set() -> None:
    source = HashtagSource(rate=100_000, seed=1)
    table = source.read(P, 1, Range(0, 200_000))
    tags = table.column("hashtags").combine_chunks()
    counts = tags.value_lengths().to_numpy()
    assert counts.min() == 1 and counts.max() <= 8
    assert counts.mean() == pytest.approx(1.57, abs=0.01)
    values, times = np.unique(tags.flatten().to_numpy(zero_copy_only=False), return_counts=True)
    frequency = dict(zip(values, times, strict=True))
    weights = np.arange(1, 1_350_001.0) ** -0.9
    for rank in (1, 2, 10, 100):
        expected = len(tags.flatten()) * weights[rank - 1] / weights.sum()
        assert frequency[f"tag{rank}"] == pytest.approx(expected, rel=5 / np.sqrt(expected))
    # The tail is really there: far more distinct tags than a batch of the head alone would have.
    assert len(values) > 90_000


def test_seeds_and_partitions_give_different_rows_and_tags_bound_them() -> None:
    def ranks(seed: int, index: int) -> list[object]:
        table = HashtagSource(rate=1000, tags=50, seed=seed).read(Place("t", index, 2), 1, Range(0, 200))
        return table.column("hashtags").to_pylist()

    assert ranks(0, 0) == ranks(0, 0)
    assert ranks(0, 0) != ranks(1, 0) and ranks(0, 0) != ranks(0, 1)
    assert {int(tag[3:]) for row in ranks(0, 0) for tag in row} <= set(range(1, 51))  # type: ignore[attr-defined]


def test_batches_have_the_same_ends_in_every_run_and_times_follow_the_rate() -> None:
    source = HashtagSource(rate=1000, interval="250ms", batches=4, start=10)
    place = Place("tweets", 2, 3)
    ends, position = [], 0
    for batch in range(1, 5):
        end = source.advance(place, batch, position)
        assert end is not None
        table = source.read(place, batch, Range(position, end))
        mark = source.watermark(place, batch, Range(position, end))
        times = table.column("time").to_numpy()
        assert mark is not None and times.max() < mark
        assert times.min() >= (ends[-1][1] if ends else 0)
        ends.append((end, mark))
        position = end
    assert [end for end, _ in ends] == [83, 166, 250, 333]
    assert ends[0][1] == 10 + (83 * 3 + 2) * 1000 and ends[-1][1] == END_OF_TIME
    assert source.advance(place, 5, position) is None


def test_an_endless_source_goes_on() -> None:
    source = HashtagSource(rate=10, interval="1s")
    assert source.advance(P, 1_000_000, 0) == 10_000_000
    assert source.watermark(P, 3, Range(20, 30)) == 3_000_000


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": 1.5}, "rate"),
        ({"interval": "0s"}, "interval"),
        ({"batches": 0}, "batches"),
        ({"exponent": 9}, "exponent"),
        ({"per_tweet": 0.5}, "per_tweet"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, object], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        HashtagSource(**{"rate": 10, **parameters})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("seed", [0, 2**31, 2**63, 2**64 + 5, 10**30])
def test_any_seed_can_be_given(seed: int) -> None:
    source = HashtagSource(rate=100, seed=seed, tags=50)
    span = Range(3, 9)
    assert source.read(Place("in", 0, 1), 1, span).equals(source.read(Place("in", 0, 1), 2, span))
    assert source.read(Place("in", 0, 1), 1, span).num_rows == 6
