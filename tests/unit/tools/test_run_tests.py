"""The test command: every part runs, whatever fails, and what is over its budget is listed."""

from __future__ import annotations

from tools.run_tests import MARKS, Part, Result, parts, run, table

FAILS = ("python", "-c", "raise SystemExit(3)")
PASSES = ("python", "-c", "")


def test_a_command_that_fails_hides_none_behind_it() -> None:
    found = run(Part("two", (FAILS, PASSES)), "test")
    assert found.codes == (3, 0)
    assert found.verdict == "FAILED (3, 0)"
    assert run(Part("one", (PASSES,)), "test").verdict == "passed"


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
