"""Sources that compute their rows from the row number: replayable by construction, with nothing to store.

Invariant: row i of partition p is a function of (seed, p, i) alone, so any range can be read again anywhere
and gives the same rows, however ranges are cut.  Offsets are row numbers within the partition; batch b ends
at row `floor(b * rows a batch)`.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import Columns, Place, Range, Source
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.parameters import duration_us, whole

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_GAMMA, _MIX1, _MIX2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


class GeneratorSource(Source):
    """`rate` rows a second of event time over all partitions, cut into batches of `interval`.

    `batches`: how many there are (none: no end).  `start`: event time of row 0 in microseconds.  Subclasses
    define `rows`.
    """

    def __init__(
        self, *, rate: int, interval: str = "500ms", batches: int | None = None, seed: int = 0, start: int = 0
    ) -> None:
        self.rate = whole(rate, "rate")
        self.interval = duration_us(interval, "interval")
        self.batches = None if batches is None else whole(batches, "batches")
        self.seed = whole(seed, "seed", least=0)
        self.start = whole(start, "start", least=0)

    @abstractmethod
    def rows(self, place: Place, numbers: Ints, times: Ints) -> pa.Table:
        """The rows with these numbers; `times` are their event times in microseconds."""

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        if self.batches is not None and batch > self.batches:
            return None
        return max(start, self._end_of(place, batch))

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        numbers = np.arange(span.start, span.end)
        return self.rows(place, numbers, self.time_of(place, numbers))

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        if self.batches is not None and batch >= self.batches:
            return END_OF_TIME
        return int(self.time_of(place, np.array([span.end]))[0])

    def time_of(self, place: Place, numbers: Ints) -> Ints:
        """Event times of rows: partitions take turns, one row every 1/rate seconds."""
        return self.start + (numbers * place.parallelism + place.index) * 1_000_000 // self.rate

    def _end_of(self, place: Place, batch: int) -> int:
        return batch * self.rate * self.interval // (1_000_000 * place.parallelism)


class HashtagSource(GeneratorSource):
    """Tweets with the statistics of Su and Zhou's data set (section 7): on average 1.57 hashtags,
    Zipf-distributed.

    Columns: `time` (int64), `tweet` (int64), `hashtags` (list of strings).  `tags`: how many different ones;
    `exponent`: s of Zipf's law; `per_tweet`: mean number a tweet, at least 1 (1 + a Poisson number, at most 8
    in all).
    """

    def __init__(
        self,
        *,
        rate: int,
        interval: str = "500ms",
        batches: int | None = None,
        seed: int = 0,
        start: int = 0,
        tags: int = 1_350_000,
        exponent: float = 0.9,
        per_tweet: float = 1.57,
    ) -> None:
        super().__init__(rate=rate, interval=interval, batches=batches, seed=seed, start=start)
        self.tags = whole(tags, "tags")
        if not 0 <= exponent <= 3:
            raise SpecError("exponent", f"must lie between 0 and 3, found {exponent!r}")
        if not 1 <= per_tweet <= 4:
            raise SpecError("per_tweet", f"must lie between 1 and 4, found {per_tweet!r}")
        self.exponent, self.per_tweet = float(exponent), float(per_tweet)

    def output_columns(self) -> Columns:
        return ("time", "tweet", "hashtags")

    def rows(self, place: Place, numbers: Ints, times: Ints) -> pa.Table:
        stream = np.uint64((self.seed * 1_000_003 + place.index) % (1 << 64))
        counts = 1 + np.searchsorted(
            _poisson(self.per_tweet - 1), uniform(stream, numbers * 16), side="right"
        )
        offsets = np.zeros(len(numbers) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        # Draw j of row i is number 16 i + j of the partition's stream; j = 0 gave the count.
        draw = np.arange(1, int(offsets[-1]) + 1) - np.repeat(offsets[:-1], counts)
        ranks = zipf(uniform(stream, np.repeat(numbers * 16, counts) + draw), self.tags, self.exponent)
        hashtags = pc.binary_join_element_wise("tag", pa.array(ranks).cast(pa.string()), "")
        tweets = numbers * place.parallelism + place.index
        lists = pa.ListArray.from_arrays(pa.array(offsets), hashtags)
        return pa.table({"time": times, "tweet": tweets, "hashtags": lists})


def uniform(stream: np.uint64, numbers: Ints) -> Floats:
    """Number n of a random stream, uniform in [0, 1), by hashing (stream, n) with splitmix64."""
    with np.errstate(over="ignore"):
        x = (numbers.astype(np.uint64) + stream * _MIX1) * _GAMMA + _GAMMA
        x = (x ^ (x >> np.uint64(30))) * _MIX1
        x = (x ^ (x >> np.uint64(27))) * _MIX2
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def zipf(u: Floats, size: int, exponent: float) -> Ints:
    """Ranks 1..size with P(r) proportional to r ** -exponent, by inversion of uniform numbers."""
    cumulative, guide = _zipf_tables(size, exponent)
    cell = (u * len(guide)).astype(np.int64)
    rank = guide[cell].astype(np.int64)
    # The guide gives the least rank of u's cell; few numbers have further to go.
    todo = np.flatnonzero(cumulative[rank] <= u)
    rank[todo] = np.searchsorted(cumulative, u[todo], side="right")
    return np.minimum(rank, size - 1) + 1


@lru_cache(maxsize=4)
def _zipf_tables(size: int, exponent: float) -> tuple[Floats, npt.NDArray[np.int32]]:
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]
    cells = 1 << 20
    guide = np.searchsorted(cumulative, np.arange(cells) / cells, side="right")
    return cumulative, np.minimum(guide, size - 1).astype(np.int32)


@lru_cache(maxsize=4)
def _poisson(mean: float) -> Floats:
    """P(N <= n) for n = 0..6; what is beyond counts as 7."""
    terms = [np.exp(-mean)]
    for n in range(1, 7):
        terms.append(terms[-1] * mean / n)
    return np.cumsum(terms)
