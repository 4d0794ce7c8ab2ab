"""Tests mirror the product: how far they do not yet is counted, and may only become less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.untested import ROOMS, Untested, main, untested

MOST_UNNAMED, MOST_UNIMPORTED = 209, 7
"""Modules without a test file of their name, and modules that no test imports.  Whoever adds a module adds its test; whoever
adds a test for one of these writes the lower number here."""


def test_no_module_is_added_that_nobody_tests() -> None:
    found = untested()
    assert found.modules > 400, "the product is not where it is looked for"
    assert len(found.unnamed) <= MOST_UNNAMED, found.unnamed
    assert len(found.unimported) <= MOST_UNIMPORTED, found.unimported


def project(folder: Path, product: dict[str, str], tests: dict[str, str]) -> Path:
    """A checkout with these files, all of the product in one room."""
    for room, files in ((ROOMS[2], product), ("tests", tests)):
        for name, text in files.items():
            (folder / room / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / room / name).write_text(text)
    return folder


def test_a_module_is_imported_by_its_name_or_through_a_door(tmp_path: Path) -> None:
    door = "from reprise.scheduler.costs import cost\nfrom reprise.scheduler.view import look\n"
    product = {
        "__init__.py": door, "__main__.py": "", "costs.py": "", "view.py": "",
        "rules/__init__.py": "", "rules/first.py": "", "rules/second.py": "",
    }  # fmt: skip
    tests = {
        "unit/test_costs.py": "from reprise.scheduler import cost\nfrom reprise.scheduler.rules import first\n",
        "unit/test_first.py": "",
        "support/helper.py": f"import reprise.{ROOMS[2]}.rules.second\n",
    }
    view, second = f"reprise.{ROOMS[2]}.view", f"reprise.{ROOMS[2]}.rules.second"
    assert untested(project(tmp_path, product, tests)) == Untested(4, (second, view), (view,))


def test_what_a_door_has_from_another_door_is_found_behind_both(tmp_path: Path) -> None:
    product = {
        "__init__.py": "from reprise.scheduler.rules import judge\n",
        "rules/__init__.py": "from reprise.scheduler.rules.first import judge\n",
        "rules/first.py": "",
    }
    tests = {"test_first.py": "from reprise.scheduler import judge\n"}
    assert untested(project(tmp_path, product, tests)) == Untested(1, (), ())


def test_what_a_door_gives_with_its_first_use_is_found_behind_it(tmp_path: Path) -> None:
    door = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from reprise.scheduler.costs import cost\n"
    )
    product = {
        "__init__.py": f"{door}if True:\n    from reprise.scheduler.view import look\n",
        "costs.py": "",
        "view.py": "",
    }
    tests = {"test_view.py": "from reprise.scheduler import cost, look\n", "test_costs.py": ""}
    view = f"reprise.{ROOMS[2]}.view"
    assert untested(project(tmp_path, product, tests)) == Untested(2, (), (view,))


def test_both_lists_are_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["untested"])
    monkeypatch.setattr("tools.untested.untested", lambda: Untested(9, ("a", "b"), ("b",)))
    main()
    assert capsys.readouterr().out.splitlines() == [
        "2 of 9 modules are without a test file of their name:", "  a", "  b",
        "1 of 9 modules are imported by no test:", "  b",
    ]  # fmt: skip
