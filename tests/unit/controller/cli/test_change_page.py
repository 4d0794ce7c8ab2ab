"""What a changed topology would do, as people and programs read it."""

from __future__ import annotations

import pytest

from reprise.controller.cli.change_page import LONGEST, ChangeRow, rows_of, show
from reprise.spark_jobs.topology.change_table import Effect
from reprise.spark_jobs.topology.changes import Change


def change(path: str, effect: Effect, before: object = 1, after: object = 2) -> Change:
    return Change(path, before, after, effect, f"because of {path}")


def test_programs_get_all_of_each_change() -> None:
    found = rows_of([change("spec.a", Effect.NEVER, None, {"x": [1]})])
    assert found == [ChangeRow("spec.a", Effect.NEVER.value, None, {"x": [1]}, "because of spec.a")]
    assert rows_of([]) == []


def test_what_takes_effect_soonest_comes_first_and_each_kind_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    effects = list(Effect)
    show([change("spec.last", effects[-1]), change("spec.b", effects[0]), change("spec.a", effects[0])])
    assert capsys.readouterr().out.splitlines() == [
        f"{effects[0].value}: 2 changes",
        "  spec.b: 1 -> 2",
        "      because of spec.b",
        "  spec.a: 1 -> 2",
        "      because of spec.a",
        f"{effects[-1].value}: 1 change",
        "  spec.last: 1 -> 2",
        "      because of spec.last",
    ]


def test_values_are_short_and_what_is_not_given_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show([change("spec.a", next(iter(Effect)), None, ["x" * LONGEST])])
    shown = capsys.readouterr().out.splitlines()[1]
    before, _, after = shown.removeprefix("  spec.a: ").partition(" -> ")
    assert before == "(not given)"
    assert len(after) == LONGEST and after.endswith("...")
    show([change("spec.a", next(iter(Effect)), "x" * LONGEST, True)])
    assert f"  spec.a: {'x' * LONGEST} -> true" in capsys.readouterr().out
