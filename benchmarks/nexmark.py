"""How many events of NexMark a second of one core makes, and how many its queries take, without Spark.

Each query runs in this process (`reprise.spark_jobs.operators.local`), with one partition of everything; seconds are of CPU
time, of all threads.  The rate of a query is of the events that its sources give; beside it stands its share of what the
sources alone do in the same run: what is missing to one is what routing and operators cost.

    python -m benchmarks.nexmark [--rate 100000] [--batches 20] [--query nexmark-q8]...
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from reprise.spark_jobs.topology.binding import make_source

EXAMPLES = Path(__file__).parents[1] / "examples"
WARM = 3
"""Batches that are not counted: tables of names and prices are made in the first."""


def single(name: str, rate: int, batches: int) -> StreamTopology:
    """An example with one partition of everything and batches of half a second."""
    resource = load_topology(EXAMPLES / f"{name}.yaml")
    changes: dict[str, object] = {}
    for source in resource.sources:
        changes |= {f"sources[{source.name}].parallelism": 1, f"sources[{source.name}].with.rate": rate}
        changes[f"sources[{source.name}].with.batches"] = batches + WARM
    changes |= {f"operators[{o.name}].parallelism": 1 for o in resource.operators}
    return override(resource, changes)


def sources_alone(resource: StreamTopology) -> tuple[int, float]:
    """Events, and seconds of CPU that it takes to make them."""
    events, taken = 0, 0.0
    for spec in resource.sources:
        source, place, end = make_source(spec), Place(spec.name, 0, 1), 0
        batch = 1
        while True:
            begin = time.process_time()
            upto = source.advance(place, batch, end)
            if upto is None:
                break
            rows = source.read(place, batch, Range(end, upto)).num_rows
            if batch > WARM:
                events, taken = events + rows, taken + time.process_time() - begin
            end, batch = upto, batch + 1
    return events, taken


def queried(resource: StreamTopology) -> tuple[int, float]:
    """Rows that came out, and seconds of CPU that the whole query takes for the same batches."""
    output = [o.name for o in resource.operators if o.output is not None]
    found, begin = 0, 0.0
    for batch, rows in enumerate(run_local(resource), 1):
        if batch == WARM:
            begin, found = time.process_time(), 0
        elif batch > WARM:
            found += sum(t.num_rows for name in output if (t := rows[f"{name}.0"]) is not None)
    return found, time.process_time() - begin


def figures(names: list[str], rate: int, batches: int) -> Iterator[str]:
    """One line a query."""
    yield f"{'query':24} {'sources, events/s':>18} {'query, events/s':>16} {'share':>6} {'rows/event':>11}"
    for name in names:
        resource = single(name, rate, batches)
        # Another seed, as a process keeps the newest batches of a graph.
        other = {f"sources[{source.name}].with.seed": 1 for source in resource.sources}
        events, alone = sources_alone(override(resource, other))
        rows, whole = queried(resource)
        yield (
            f"{name:24} {events / alone:>18,.0f} {events / whole:>16,.0f} {alone / whole:>6.2f} {rows / events:>11.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=100_000, help="events a second of event time")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--query", action="append", help="an example (repeatable; default: all of NexMark)")
    options = parser.parse_args()
    every = sorted(path.stem for path in EXAMPLES.glob("nexmark-q*.yaml") if "kafka" not in path.stem)
    for line in figures(options.query or every, options.rate, options.batches):
        print(line, flush=True)
