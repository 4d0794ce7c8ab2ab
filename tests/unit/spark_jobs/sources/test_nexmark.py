"""NexMark's events against a plain loop over event numbers: kinds, ids, times, batches and keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sources import END_OF_TIME, NexmarkSource
from tests.support.examples import examples

KINDS = ("person", "auction", "bid")
kinds = st.sets(st.sampled_from(KINDS), min_size=1).flatmap(
    lambda counted: st.tuples(st.just(sorted(counted)), st.sampled_from(sorted(counted)))
)


def kind_of(event: int) -> str:
    """Of fifty events the first is a person and the next three are auctions."""
    place = event % 50
    return "person" if place == 0 else "auction" if place < 4 else "bid"


def by_hand(counted: list[str], count: int) -> list[tuple[str, int, int, int]]:
    """(kind, id, newest person, newest auction) of the first `count` events of these kinds, ids from 1000."""
    found, born = [], Counter[str]()
    event = 0
    while len(found) < count:
        kind = kind_of(event)
        born[kind] += 1
        if kind in counted:
            found.append((kind, 999 + born[kind], born["person"] - 1, born["auction"] - 1))
        event += 1
    return found


def batches_of(source: NexmarkSource, parallelism: int, count: int) -> list[list[pa.Table]]:
    """Rows by batch and partition."""
    found = []
    ends = [0] * parallelism
    for batch in range(1, count + 1):
        row = []
        for index in range(parallelism):
            place = Place("s", index, parallelism)
            end = source.advance(place, batch, ends[index])
            assert end is not None
            row.append(source.read(place, batch, Range(ends[index], end)))
            ends[index] = end
        found.append(row)
    return found


@examples(40)
@given(kinds, st.integers(1, 5), st.integers(1, 900), st.integers(0, 3))
def test_a_batch_has_the_events_of_its_stretch_of_time(
    drawn: tuple[list[str], str], parallelism: int, rate: int, seed: int
) -> None:
    counted, kind = drawn
    source = NexmarkSource(kind=kind, rate=rate, rate_of=counted, interval="250ms", seed=seed)
    events = by_hand(counted, 2 * rate + 1)
    for number, parts in enumerate(batches_of(source, parallelism, 8)):
        low, high = number * rate * 250 // 1000, (number + 1) * rate * 250 // 1000
        wanted = [
            (id_, n * 1_000_000 // rate)
            for n, (k, id_, _, _) in enumerate(events[:high])
            if n >= low and k == kind
        ]
        times = sorted(t for part in parts for t in part["time"].to_pylist())
        assert times == [t for _, t in wanted]
        if kind != "bid":
            found = sorted(
                (i, t) for p in parts for i, t in zip(p["id"].to_pylist(), p["time"].to_pylist(), strict=True)
            )
            assert found == wanted


@examples(20)
@given(kinds, st.integers(1, 4), st.floats(0, 1), st.integers(0, 2**70))
def test_events_are_the_same_for_any_number_of_partitions_and_wherever_ranges_are_cut(
    drawn: tuple[list[str], str], parallelism: int, hot: float, seed: int
) -> None:
    counted, kind = drawn
    source = NexmarkSource(kind=kind, rate=300, rate_of=counted, seed=seed, hot=hot, extra=3)
    whole = source.read(Place("s", 0, 1), 1, Range(0, 120)).to_pylist()
    for index in range(parallelism):
        place = Place("s", index, parallelism)
        first, second = (source.read(place, 1, span).to_pylist() for span in (Range(0, 7), Range(7, 30)))
        assert [*first, *second] == whole[index::parallelism][:30]


@pytest.mark.parametrize("hot", [0.0, 0.1, 0.3, 1.0])
def test_hot_keys_have_their_share_and_move_and_others_are_active(hot: float) -> None:
    count = 60_000
    bids = NexmarkSource(kind="bid", rate=1000, hot=hot, active=50, in_flight=20)
    auctions = NexmarkSource(kind="auction", rate=1000, hot=hot, active=50)
    bid = bids.read(Place("s", 0, 1), 1, Range(0, count))
    auction = auctions.read(Place("s", 0, 1), 1, Range(0, count))
    keys: list[tuple[Any, str, int, int, int]] = [
        (bid["bidder"], "bid", 2, 1, 50),
        (bid["auction"], "bid", 3, 0, 20),
        (auction["seller"], "auction", 2, 0, 50),
    ]
    for column, kind, newest, offset, window in keys:
        last = np.array([event[newest] for event in by_hand([kind], count)])
        found = column.to_numpy() - 1000
        chosen = last // 100 * 100 + offset
        # The hot one is now and then drawn among the others, too.
        assert np.mean(found == chosen) == pytest.approx(hot, abs=0.025)
        others = found[found != chosen]
        at = last[found != chosen]
        extra = 0 if kind == "auction" or newest == 2 else 1
        if hot < 1:
            assert (others <= at + 10).all() and (others > at - window - extra).all() and (others >= 0).all()
            assert (others > at).any(), "some are not there yet"
            assert len(np.unique(others - at)) == window + 10 + extra
        assert len(np.unique(chosen[found == chosen])) >= (len(np.unique(last // 100)) if hot else 1)


def test_values_are_those_of_the_auction_house() -> None:
    place = Place("s", 0, 1)
    person = NexmarkSource(kind="person", rate=10).read(place, 1, Range(0, 5000))
    states = Counter(person["state"].to_pylist())
    assert set(states) == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    assert all(n == pytest.approx(5000 / 6, rel=0.15) for n in states.values())
    assert all(len(card) == 19 for card in person["credit_card"].to_pylist())
    auction = NexmarkSource(kind="auction", rate=10).read(place, 1, Range(0, 5000))
    assert set(auction["category"].to_pylist()) == set(range(10, 15))
    # A hundred auctions take ten seconds at ten a second; auctions last as long on average.
    assert np.mean(auction["expires"].to_numpy() - auction["time"].to_numpy()) == pytest.approx(
        10e6, rel=0.05
    )
    assert (auction["reserve"].to_numpy() > auction["initial_bid"].to_numpy()).all()
    bid = NexmarkSource(kind="bid", rate=10).read(place, 1, Range(0, 20_000))
    price = bid["price"].to_numpy()
    assert price.min() >= 100 and price.max() <= 100_000_000
    # Even in the logarithm: as many in each power of ten.
    assert np.histogram(np.log10(price), bins=6, range=(2, 8))[0] == pytest.approx(20_000 / 6, rel=0.08)
    channels = Counter(bid["channel"].to_pylist())
    assert [channels[c] for c in ("Google", "Facebook", "Baidu", "Apple")] == pytest.approx(
        [2500] * 4, rel=0.15
    )


def test_persons_and_auctions_of_one_rate_stay_in_step() -> None:
    both = ["person", "auction"]
    sources = [NexmarkSource(kind=kind, rate=400, rate_of=both, batches=5) for kind in both]
    for number, parts in enumerate(zip(*(batches_of(s, 3, 5) for s in sources), strict=True)):
        rows = [table for part in parts for table in part]
        assert sum(table.num_rows for table in rows) == 200
        times = [t for table in rows for t in table["time"].to_pylist()]
        assert number * 500_000 <= min(times) and max(times) < (number + 1) * 500_000


def test_no_later_row_lies_below_a_watermark_and_the_last_batch_closes_all() -> None:
    source = NexmarkSource(kind="auction", rate=77, rate_of=["auction", "bid"], batches=9)
    for index in range(3):
        place, end, before = Place("s", index, 3), 0, None
        for batch in range(1, 10):
            start, end = end, source.advance(place, batch, end) or 0
            times = source.read(place, batch, Range(start, end))["time"].to_pylist()
            assert before is None or all(t >= before for t in times)
            before = source.watermark(place, batch, Range(start, end))
        assert before == END_OF_TIME
        assert source.advance(place, 10, end) is None


@pytest.mark.parametrize(
    ("parameters", "field", "reason"),
    [
        ({"kind": "bids"}, "kind", "did you mean 'bid'"),
        ({"rate": 0}, "rate", "at least 1"),
        ({"rate_of": ["person", "auktion"]}, "rate_of", "did you mean 'auction'"),
        ({"rate_of": ["person"]}, "rate_of", "'bid'"),
        ({"rate_of": []}, "rate_of", "at least 1"),
        ({"hot": 1.5}, "hot", "between 0 and 1"),
        ({"hot": "much"}, "hot", "between 0 and 1"),
        ({"active": 0}, "active", "at least 1"),
        ({"in_flight": 0}, "in_flight", "at least 1"),
        ({"extra": -1}, "extra", "at least 0"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, object], field: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as caught:
        NexmarkSource(**{"kind": "bid", "rate": 10, **parameters})  # type: ignore[arg-type]
    assert caught.value.field == field
