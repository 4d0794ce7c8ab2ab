"""The table of the records in docs/recovery.md names each znode, and types and modules that are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from reprise.controller.zookeeper import membership, paths

PAGE = Path("docs/recovery.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE[
        PAGE.index("| znode |") : PAGE.index("The cluster on one machine keeps three more")
    ].splitlines()
    if line.startswith("| `")
]
ZNODES = [re.findall(r"`([a-z]+(?:/[a-z]+)?)", row[0]) for row in ROWS]


def test_every_znode_has_one_line() -> None:
    known = {value for name, value in vars(paths).items() if name.isupper() and isinstance(value, str)}
    named = [name for names in ZNODES for name in names]
    assert sorted(named) == sorted(known | {membership.FOLDER})


def test_types_and_modules_are_there() -> None:
    for row in ROWS:
        names = re.findall(r"`(\w+)`", row[1])
        if names:
            module = importlib.import_module(f"reprise.controller.zookeeper.{names[-1]}")
            for name in names[:-1]:
                assert name in ("true", "false") or hasattr(module, name), row
    assert {len(row) for row in ROWS} == {6}
