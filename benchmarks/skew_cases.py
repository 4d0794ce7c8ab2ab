"""What `benchmarks.skew` runs: queries, ways to guard them, which of these go together, and at which rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.overhead_topology import FASTEST, NODE_CPU_MILLI
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, load_topology

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
INTERVAL_MS = 500
"""Of a batch."""


@dataclass(frozen=True, slots=True)
class Query:
    """One of CheckMate's queries.  `stateful`: the operator that the hot keys go to, and its noted class; empty: it has no
    state of keys, and is the one that the sources send to."""

    name: str
    sources: tuple[str, ...]
    stateful: str
    noted: str = ""
    identity: tuple[str, ...] = ()
    """Columns of a row that do not depend on the order of input; none: no column does."""
    window: int | None = None
    """Batches of a window of processing time, where what comes out depends on the window in which rows are applied."""


QUERIES: Mapping[str, Query] = {
    "q1": Query("q1", ("bids",), "convert"),
    "q3": Query("q3", ("persons", "auctions"), "join", "NotedJoin"),
    "q8": Query("q8", ("persons", "auctions"), "join", "NotedJoin", window=10_000 // INTERVAL_MS),
    "q12": Query("q12", ("bids",), "count", "NotedRunningAggregate", identity=("bidder", "time")),
}
ORDERS = ("aligned", "arrival")
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "coordinated": {},
    "uncoordinated": {"checkpoint.log": "checkpointed"},
    "communication-induced": {"checkpoint.log": "checkpointed"},
}
NONE = "none"
"""In place of a protocol: coordinated checkpoints of which none is due before the end of a run."""
HOT = (0.0, 0.1, 0.2, 0.3)
SHARES = (0.5, 0.8)


@dataclass(frozen=True, slots=True)
class Way:
    """How a query is guarded."""

    order: str
    protocol: str

    def __str__(self) -> str:
        return f"{self.order}, {self.protocol}"


UNGUARDED = Way("aligned", NONE)
"""What a protocol costs is a share of what this sustains.  In the order of arrival nothing would be shown."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run; `rate`: rows a second that the sources give together, as `rate` of the examples counts them."""

    query: str
    way: Way
    share: float
    hot: float
    rate: int
    ballast: int = 0
    """MiB by which the state of each partition with hot keys is larger than its rows make it."""

    @property
    def folder(self) -> str:
        """Its name in the folder of the benchmark."""
        where = f"{self.query}-{self.share:g}-{self.hot:g}" + (f"-{self.ballast}Mi" if self.ballast else "")
        return f"{where}-{self.way.order}-{self.way.protocol}"

    @property
    def same_input(self) -> tuple[str, float, int]:
        """Runs with the same of these read the same rows, if they are as long."""
        return self.query, self.hot, self.rate


@dataclass(frozen=True, slots=True)
class Size:
    """What all runs of an invocation share.  `workers`: nodes, and partitions of each source and operator."""

    workers: int
    every: int
    """Batches between two checkpoints."""
    notes: Path | None = None
    """Where the operators write their notes; None: they write none."""
    ballast: int = 0
    """MiB more in each state with hot keys; only with notes, as it is their operators that hold it."""


def resource(
    query: str, way: Way, rate: int, hot: float, batches: int, size: Size, fastest: bool = False
) -> StreamTopology:
    """The example with one partition of everything a worker.  SpecError for a way that is refused.

    Rounds count batches where a window has to end with one; all else goes by time.
    """
    one = QUERIES[query]
    protocol = "coordinated" if way == UNGUARDED else way.protocol
    changes: dict[str, Any] = {
        "batch.order": way.order,
        "checkpoint.protocol": protocol,
        **PROTOCOLS[protocol],
    }
    changes |= {"nodes.count": size.workers, "nodes.cpu": f"{NODE_CPU_MILLI}m", "checkpoint.keep": 100}
    every = 100 * batches if way == UNGUARDED else size.every
    if protocol == "coordinated" and (one.window is not None or way == UNGUARDED):
        changes |= {"checkpoint.interval": None, "checkpoint.everyBatches": every}
    else:
        changes["checkpoint.interval"] = f"{size.every * INTERVAL_MS}ms"
    if fastest:
        changes["batch.interval"] = FASTEST
    for source in one.sources:
        at = f"sources[{source}]"
        changes |= {f"{at}.parallelism": size.workers}
        changes |= {f"{at}.with.rate": rate, f"{at}.with.hot": hot, f"{at}.with.batches": batches}
    found = load_topology(EXAMPLES / f"nexmark-{query}.yaml")
    changes |= {f"operators[{o.name}].parallelism": size.workers for o in found.operators}
    if size.notes is not None:
        changes |= _noted(one, size.notes, size.ballast)
    loaded = load_topology(EXAMPLES / f"nexmark-{query}.yaml", changes)
    return replace(loaded, name=f"{query}-{way.order}-{way.protocol}")


def _noted(query: Query, notes: Path, ballast: int) -> dict[str, Any]:
    stateful, sink = f"operators[{query.stateful}]", "operators[sink]"
    changes: dict[str, Any] = {
        f"{sink}.class": "benchmarks.skew_probe:NotedSink",
        f"{sink}.with": {"notes": str(notes), "interval": INTERVAL_MS * 1000},
    }
    if query.noted:
        changes[f"{stateful}.class"] = f"benchmarks.skew_probe:{query.noted}"
        changes |= {f"{stateful}.with.notes": str(notes), f"{stateful}.with.ballast": ballast}
    return changes


def refusals(queries: Sequence[str], ways: Sequence[Way], size: Size) -> dict[Way, str]:
    """Which ways cannot be run, with what the engine says about them; they are the same for all of these queries."""
    found: dict[Way, str] = {}
    for way in ways:
        for query in queries:
            try:
                resource(query, way, 1000, 0.0, size.every, size)
            except SpecError as error:
                found.setdefault(way, str(error))
    return found


def cases(
    queries: Sequence[str],
    shares: Sequence[float],
    hot: Sequence[float],
    rates: Mapping[tuple[str, Way], float],
    states: Sequence[int] = (0,),
) -> Iterator[Case]:
    """All runs, those with the same input one after the other where all ways have one rate.  `rates`: what is sustained
    without skew, rows a second, of each query and way that is to be run; `states`: MiB by which states are larger."""
    for query in queries:
        ways = [way for name, way in rates if name == query]
        for share in shares:
            for part in hot:
                for way, ballast in product(ways, states):
                    yield Case(query, way, share, part, max(1, round(share * rates[query, way])), ballast)


def sustainable(upper: float, precision: float, holds: Callable[[float], bool]) -> float:
    """The highest rate below `upper` that was seen to hold, by halving what is between one that holds and one that does not;
    0 when none of a sixteenth of `upper` or more was.

    Each try costs a run, so it ends when the two are as near as `precision`, as a share of the higher one, and when none of
    that sixteenth or more has held: it is not the rate that a machine cannot follow then.
    """
    lower, least = 0.0, upper / 16
    while upper - lower > precision * upper and upper > least:
        rate = (upper + lower) / 2
        if holds(rate):
            lower = rate
        else:
            upper = rate
    return lower


def unpaced(rate: int, throughput: Callable[[int], float]) -> float:
    """What goes through as fast as it can, in batches that are about as large as they are at that pace, as large ones cost
    less a row.  `throughput`: rows a second with batches of a rate, which takes a run, of which there are at most three."""
    found = throughput(rate)
    for _ in range(2):
        if found <= 2 * rate:
            break
        rate = round(found)
        found = throughput(rate)
    return found
