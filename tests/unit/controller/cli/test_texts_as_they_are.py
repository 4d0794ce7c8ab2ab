"""What users' code raises and how folders are called is shown as it is, whatever rich would make of it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from reprise.controller.cli import main
from reprise.controller.cli.render import plain_console, plain_table

CLI = Path(__file__).parents[4] / "controller" / "cli"
ODD = "KeyError: [/data/x] and [red]y[/red] :warning: [Errno 28]"


def test_the_history_of_a_run_shows_what_was_raised(tmp_path: Path) -> None:
    """A path in brackets would be the end of a mark that never began, and an error."""
    plan = {"id": "inc-1-p1", "summary": ODD, "left_out": {"a.0": ODD}}
    incident = {"id": "inc-1", "kind": "correlated", "checkpoint": 3, "queries": {}, "plans": [plan]}
    report = {
        "topology": "t", "strategy": "incremental", "outcome": "failed", "failure": None, "incidents": [incident],
        "timeline": [{"elapsed": 1.0, "what": "set-aside", "detail": ODD}],
    }  # fmt: skip
    (tmp_path / "incident.json").write_text(json.dumps(report))
    found = CliRunner().invoke(main, ["history", "--plans", "--out", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert f"set-aside  {ODD}" in found.output and f"inc-1-p1  {ODD}" in found.output
    assert f"a.0: {ODD}" in found.output


def test_cells_of_tables_are_texts_too(capsys: pytest.CaptureFixture[str]) -> None:
    table = plain_table(title=ODD)
    table.add_column("[/x]")
    table.add_row(ODD)
    plain_console(width=200).print(table)
    shown = capsys.readouterr().out
    assert shown.count(ODD) == 2 and "[/x]" in shown


def test_no_command_has_a_console_of_its_own() -> None:
    own = [
        f"{path.name}:{node.lineno}"
        for path in sorted(CLI.glob("*.py"))
        if path.name != "render.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console"
    ]
    assert own == [], "plain_console() shows texts as they are"
