"""The test command: every part runs, whatever fails, and what is over its budget is listed."""

from __future__ import annotations

import json
import subprocess
import sys

from tools.run_tests import MARKS, Result, parts, table

RUN = """
import json
from tools.run_tests import Part, run
fails, passes = ("python", "-c", "raise SystemExit(3)"), ("python", "-c", "")
found = [run(Part("part", commands), "test") for commands in ((fails, passes), (passes,))]
print(json.dumps([[one.codes, one.verdict] for one in found]))
"""
"""In a process of its own, as it waits for all children of its process."""


def test_a_command_that_fails_hides_none_behind_it() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [[[3, 0], "FAILED (3, 0)"], [[0], "passed"]]


def test_what_is_over_its_budget_is_listed_with_its_figure() -> None:
    tests = {"a": 3.5, "b": 0.1}
    found = table(
        [Result("unit", 10.0, 600.0, (0,), tests), Result("spark", 9.0, 20.0, (1,), {})], {"unit": 500.0}
    )
    assert "over its share: unit, 600 CPU s of 500" in found
    assert "over 3 CPU s: 3.5 a" in found
    assert " b" not in found
    assert [line.split()[-1] for line in found.splitlines() if line.startswith(("unit", "spark"))] == [
        "passed",
        "(1)",
    ]


def test_every_test_has_a_part_in_each_level_that_takes_it() -> None:
    for level in MARKS:
        words = [command for part in parts(level) for command in part.commands]
        assert words, level
    ignored = {w for w in parts("all")[2].commands[0] if w.startswith("--ignore=")}
    elsewhere = {
        f"--ignore={w}"
        for part in parts("all")[3:]
        for c in part.commands
        for w in c
        if w.startswith("tests/")
    }
    assert ignored == elsewhere
