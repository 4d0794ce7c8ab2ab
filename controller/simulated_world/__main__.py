"""Run random fault schedules against the real code in virtual time.

  python -m reprise.controller.simulated_world --schedules 100
  python -m reprise.controller.simulated_world --seed 17 --trace

Each seed gives one schedule: a small topology runs on four nodes, and nodes, drivers, coordinators, ZooKeeper and the
store fail at times that the seed draws.  Every file that a sink shows is compared with a run without faults, and the
records are checked after every event.  A schedule that breaks something is made shorter for as long as it still does,
and printed so that it can be pasted into a test.  The same seed
always gives the same run.

Exit code 1: some schedule has broken something.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time

from reprise.controller.simulated_world.schedule import Schedule, run, shrink


def main() -> int:
    """Parse the command line, run, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m reprise.controller.simulated_world",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--schedules", type=int, default=1, help="so many seeds from there on (default 1)")
    parser.add_argument("--trace", action="store_true", help="print what happens in each run, a line each")
    parser.add_argument(
        "--no-shrink", action="store_true", help="print a schedule that breaks something as it was drawn"
    )
    parser.add_argument("--verbose", action="store_true", help="print a line for each seed")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of text follows from it
        os.execve(sys.executable, [sys.executable, "-m", "reprise.controller.simulated_world", *sys.argv[1:]],
                  {**os.environ, "PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"})  # fmt: skip
    gc.freeze()  # what was imported stays, and is not looked through again and again
    gc.set_threshold(20_000, 20, 20)
    broken, began, virtual = 0, time.perf_counter(), 0.0
    for seed in range(options.seed, options.seed + options.schedules):
        outcome = run(Schedule.of(seed))
        virtual += outcome.virtual_s
        if options.verbose:
            print(f"seed {seed}: {outcome.events} events, {outcome.virtual_s:.0f} s", flush=True)
        if options.trace:
            print("\n".join(outcome.told))
        if outcome.violation is not None:
            broken += 1
            print(f"seed {seed}: {outcome.violation}")
            found = outcome if options.no_shrink else shrink(outcome)
            print(f"{found.schedule}\n# {found.violation}\n", flush=True)
    took = time.perf_counter() - began
    print(f"{options.schedules} schedules, {broken} broken, {virtual:.0f} s of virtual time in {took:.1f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
