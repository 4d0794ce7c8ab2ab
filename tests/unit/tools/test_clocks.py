"""Modules that ask a clock, begin a thread or draw a random number by themselves run in real time alone: the simulated world
cannot have them as they are.  The list may only become shorter: `reprise.spark_jobs.platform` is what to use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("algorithms", "scheduler", "spark_jobs", "controller")
BY_THEMSELVES = {
    "time": {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "thread_time",
        "process_time",
        "sleep",
    },
    "threading": {"Thread", "Timer"},
    "random": {"random", "randrange", "randint", "choice", "shuffle", "uniform", "sample"},
    "secrets": {"token_hex", "token_bytes", "randbelow", "choice"},
    "uuid": {"uuid4", "uuid1"},
    "datetime": {"now", "utcnow"},
}


def asks_itself(source: str) -> set[str]:
    """What of `BY_THEMSELVES` a module calls; a default of a parameter that is only named is none."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            module, name = node.func.value.id, node.func.attr
            if name in BY_THEMSELVES.get(module, ()):
                found.add(f"{module}.{name}")
    return found


@pytest.mark.long
def test_the_list_is_the_truth() -> None:
    listed = (Path(__file__).parent / "clocks.txt").read_text().split()
    modules = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    found = [str(path.relative_to(ROOT)) for path in modules if asks_itself(path.read_text())]
    more = sorted(set(found) - set(listed))
    assert not more, f"{more}: take a Platform, or a clock as a parameter"
    assert listed == found, f"take these off the list: {sorted(set(listed) - set(found))}"


def test_what_is_only_named_as_a_default_is_given() -> None:
    assert asks_itself("import time\ndef f(clock=time.monotonic): return clock()") == set()
    assert asks_itself("import time\ndef f(): return time.monotonic()") == {"time.monotonic"}
