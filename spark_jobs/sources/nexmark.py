"""NexMark's events: an auction house with persons, auctions and bids, computed from the number of the event.

Tucker, Tufte, Papadimos and Maier, "NEXMark: a benchmark for queries over data streams" (2008), with the shares,
names and key distributions of the generator that Apache Beam and Flink use: of 50 events one is a person, three are
auctions and 46 are bids.  Hot keys are those of Siachamis et al., "CheckMate: Evaluating Checkpointing Protocols for
Streaming Dataflows".

Invariant: event e is a function of (seed, e) alone, however many partitions read it and however ranges are cut; and
a batch has the same events in all sources that have the same `rate`, `rate_of`, `interval` and `start`, whatever
`kind` each gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import Columns, Place, SourcePart
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.parameters import choice, names, whole
from reprise.spark_jobs.sources.dealing import dealt_again
from reprise.spark_jobs.sources.generator import Floats, GeneratorSource, Ints, uniform

EPOCH = 50
"""Events after which the kinds repeat."""
SHARES = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
"""Place of a kind's first event in an epoch, and how many there are in one."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
LEAD = 10
"""Keys that do not exist yet and may be drawn: their owners come a little later."""
HOT_EVERY = 100
"""Keys after which the hot one moves."""
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
_DRAWS = 8
"""Random numbers that belong to one event."""
_PRICES = 4096
COLUMNS = {
    "person": ("time", "id", "name", "email", "credit_card", "city", "state"),
    "auction": ("time", "id", "item", "initial_bid", "reserve", "expires", "seller", "category"),
    "bid": ("time", "auction", "bidder", "price", "channel", "url"),
}


class NexmarkSource(GeneratorSource):
    """Events of one `kind`: `person`, `auction` or `bid`; `rate` counts those of `rate_of` (default: of
    `kind` alone).

    Two sources of a query, `person` and `auction`, stay in step when both say `rate_of: [person, auction]`: batch b
    has the same stretch of events in both.  `hot`, 0 to 1: the share of sellers, bidders and auctions that is the
    hot key, which moves on with every 100 persons (or auctions); other keys are drawn evenly from the last `active`
    persons and `in_flight` auctions, and from the 10 to come.  `extra`: length of a column with random letters.

    Columns, all int64 or string, `time` and `expires` in microseconds. person: `time`, `id`, `name`, `email`,
    `credit_card`, `city`, `state`; auction: `time`, `id`, `item`, `initial_bid`, `reserve`, `expires`, `seller`,
    `category`; bid: `time`, `auction`, `bidder`, `price`, `channel`, `url`.
    """

    def __init__(
        self,
        *,
        kind: str,
        rate: int,
        rate_of: Sequence[str] | None = None,
        interval: str = "500ms",
        batches: int | None = None,
        seed: int = 0,
        start: int = 0,
        hot: float = 0.0,
        active: int = 1000,
        in_flight: int = 100,
        extra: int = 0,
    ) -> None:
        super().__init__(rate=rate, interval=interval, batches=batches, seed=seed, start=start)
        self.kind = choice(kind, "kind", list(SHARES))
        counted = names([self.kind] if rate_of is None else rate_of, "rate_of", least=1)
        for name in counted:
            choice(name, "rate_of", list(SHARES))
        if self.kind not in counted:
            raise SpecError("rate_of", f"must have the kind {self.kind!r} among those that the rate counts")
        if isinstance(hot, bool) or not isinstance(hot, int | float) or not 0 <= hot <= 1:
            raise SpecError("hot", f"must lie between 0 and 1, found {hot!r}")
        self.hot = float(hot)
        self.active, self.in_flight = whole(active, "active"), whole(in_flight, "in_flight")
        self.extra = whole(extra, "extra", least=0)
        self.first, self.share = SHARES[self.kind]
        self.counted = sum(share for name, (_, share) in SHARES.items() if name in counted)
        self.before = sum(n for name, (at, n) in SHARES.items() if name in counted and at < self.first)
        """Counted events of an epoch that come before the first one of this kind."""

    def output_columns(self) -> Columns:
        return (*COLUMNS[self.kind], *(("extra",) if self.extra else ()))

    def time_of(self, place: Place, numbers: Ints) -> Ints:
        """Event times of rows, from the number of each among the events that the rate counts."""
        own = numbers * place.parallelism + place.index
        counted = own // self.share * self.counted + self.before + own % self.share
        return self.start + counted * 1_000_000 // self.rate

    def _end_of(self, place: Place, batch: int) -> int:
        epochs, rest = divmod(batch * self.rate * self.interval // 1_000_000, self.counted)
        own = epochs * self.share + min(max(rest - self.before, 0), self.share)
        return max(0, -((place.index - own) // place.parallelism))

    def rows(self, place: Place, numbers: Ints, times: Ints) -> pa.Table:
        own = numbers * place.parallelism + place.index
        make = {"person": self._persons, "auction": self._auctions, "bid": self._bids}[self.kind]
        columns: dict[str, pa.Array | Ints] = {"time": times}
        columns |= make(own, times)
        if self.extra:
            columns["extra"] = self._letters(own)
        return pa.table(columns)

    def repartition(
        self, operator: str, parts: Sequence[SourcePart], parallelism: int
    ) -> Sequence[SourcePart]:
        return dealt_again(operator, parts, parallelism)

    def _draw(self, own: Ints) -> Callable[[int], Floats]:
        """Number j, below 8, of the random numbers of each event."""
        stream = np.uint64((self.seed * 1_000_003 + self.first) % (1 << 64))
        return lambda j: uniform(stream, own * _DRAWS + j)

    def _persons(self, own: Ints, times: Ints) -> dict[str, pa.Array | Ints]:
        draw = self._draw(own)
        card = _below(draw(4), 10**16)
        groups = [_four_digits().take(pa.array(card // 10**n % 10**4)) for n in (12, 8, 4, 0)]
        letters = _below(draw(3), 26**5)
        return {
            "id": own + FIRST_ID,
            "name": _picked(_full_names(), draw(0)),
            "email": pc.binary_join_element_wise(
                "p",
                pa.array(letters).cast(pa.string()),
                "@",
                pa.array(own % 997).cast(pa.string()),
                ".com",
                "",
            ),
            "credit_card": pc.binary_join_element_wise(*groups, " "),
            "city": _picked(pa.array(CITIES), draw(1)),
            "state": _picked(pa.array(STATES), draw(2)),
        }

    def _auctions(self, own: Ints, times: Ints) -> dict[str, pa.Array | Ints]:
        draw = self._draw(own)
        initial = _prices(draw(2))
        # As many microseconds as `in_flight` auctions take to come, on average.
        horizon = self.in_flight * self.counted * 1_000_000 // (self.rate * SHARES["auction"][1])
        return {
            "id": own + FIRST_ID,
            "item": pc.binary_join_element_wise("item", pa.array(own).cast(pa.string()), " "),
            "initial_bid": initial,
            "reserve": initial + _prices(draw(3)),
            "expires": times + 1 + _below(draw(4), max(2 * horizon, 1)),
            "seller": self._person(own // self.share, draw(0), draw(1), 0),
            "category": FIRST_CATEGORY + _below(draw(5), CATEGORIES),
        }

    def _bids(self, own: Ints, times: Ints) -> dict[str, pa.Array | Ints]:
        draw = self._draw(own)
        epochs = own // self.share
        last = epochs * SHARES["auction"][1] + SHARES["auction"][1] - 1
        least = np.maximum(last - self.in_flight, 0)
        auction = least + _spread(draw(1), last - least + 1 + LEAD)
        auction = np.where(draw(0) < self.hot, last // HOT_EVERY * HOT_EVERY, auction)
        channel = draw(5)
        # One half comes by the four great channels, which are the last four in the list.
        number = np.where(channel < 0.5, CHANNELS + _below(channel * 2, 4), _below(channel * 2 - 1, CHANNELS))
        names, urls = _channels()
        return {
            "auction": auction + FIRST_ID,
            "bidder": self._person(epochs, draw(2), draw(3), 1),
            "price": _prices(draw(4)),
            "channel": names.take(pa.array(number)),
            "url": urls.take(pa.array(number)),
        }

    def _person(self, last: Ints, hot: Floats, which: Floats, offset: int) -> Ints:
        """Ids of sellers or bidders, when person number `last` is the newest; `offset`: of the hot one, so that the
        hot bidder is not the hot seller."""
        active = np.minimum(last + 1, self.active)
        drawn = last + 1 - active + _spread(which, active + LEAD)
        found: Ints = FIRST_ID + np.where(hot < self.hot, last // HOT_EVERY * HOT_EVERY + offset, drawn)
        return found

    def _letters(self, own: Ints) -> pa.Array:
        stream = np.uint64((self.seed * 1_000_003 + self.first + EPOCH) % (1 << 64))
        draws = uniform(
            stream, np.repeat(own * self.extra, self.extra) + np.tile(np.arange(self.extra), len(own))
        )
        letters = (_below(draws, 26) + ord("a")).astype(np.uint8).reshape(len(own), self.extra)
        found: pa.Array = pa.array(letters.view(f"S{self.extra}")[:, 0]).cast(pa.string())
        return found


def _below(u: Floats, size: int) -> Ints:
    """Whole numbers from 0 to size - 1 out of uniform ones."""
    return (u * size).astype(np.int64)


def _spread(u: Floats, sizes: Ints) -> Ints:
    found: Ints = (u * sizes).astype(np.int64)
    return found


def _picked(values: pa.Array, u: Floats) -> pa.Array:
    found: pa.Array = values.take(pa.array(_below(u, len(values))))
    return found


def _prices(u: Floats) -> Ints:
    """Prices from 100 to 100 million cents, even in their logarithm."""
    table = _price_table()
    at = u * _PRICES
    cell = at.astype(np.int64)
    part = ((at - cell) * (1 << 20)).astype(np.int64)
    low = table[cell]
    found: Ints = low + ((table[cell + 1] - low) * part >> 20)
    return found


@lru_cache(maxsize=1)
def _price_table() -> Ints:
    """Prices at equal steps of their logarithm, in decimal arithmetic: powers of floats differ between processors."""
    with localcontext() as context:
        context.prec = 40
        step = Decimal(10) ** (Decimal(6) / _PRICES)
        found = [Decimal(100)]
        for _ in range(_PRICES):
            found.append(found[-1] * step)
    return np.array([round(each) for each in found], np.int64)


@lru_cache(maxsize=1)
def _four_digits() -> pa.Array:
    return pa.array([f"{n:04d}" for n in range(10**4)])


@lru_cache(maxsize=1)
def _full_names() -> pa.Array:
    return pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])


@lru_cache(maxsize=1)
def _channels() -> tuple[pa.Array, pa.Array]:
    """Names of all channels and the address that each leads to; nine in ten of the small ones say their
    number in it."""
    paths = uniform(np.uint64(EPOCH), np.arange((CHANNELS + len(HOT_CHANNELS)) * 3)) * 26**4
    words = ["".join(chr(ord("a") + int(p) // 26**n % 26) for n in range(4)) for p in paths]
    urls = ["/".join(words[3 * i : 3 * i + 3]) for i in range(CHANNELS + len(HOT_CHANNELS))]
    marks = [f"&channel_id={i}" if i % 10 and i < CHANNELS else "" for i in range(len(urls))]
    full = [
        f"https://www.nexmark.com/{path}/item.htm?query=1{mark}"
        for path, mark in zip(urls, marks, strict=True)
    ]
    return pa.array([*(f"channel-{i}" for i in range(CHANNELS)), *HOT_CHANNELS]), pa.array(full)
