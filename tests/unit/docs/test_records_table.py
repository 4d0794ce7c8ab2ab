"""The table of the records in docs/recovery.md names each znode, and types and modules that are there; the examples on that
page are records."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.zookeeper import membership, node_record, paths, records, recovery_records

PAGE = (Path(__file__).parents[3] / "docs/recovery.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE[
        PAGE.index("| znode |") : PAGE.index("The cluster on one machine keeps three more")
    ].splitlines()
    if line.startswith("| `")
]
ZNODES = [re.findall(r"`([a-z]+(?:-[a-z]+)*(?:/[a-z]+)?)", row[0]) for row in ROWS]


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


EXAMPLES = {
    heading.group(1): json.loads(heading.group(2))
    for heading in re.finditer(
        r"^`([a-z]+)[^`\n]*`[^\n]*\n(?:[^\n]+\n)*\n((?:    [^\n]*\n)+)", PAGE, re.MULTILINE
    )
}
RECORDS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "nodes": (node_record.parse_node, node_record.encode_node),
    "progress": (records.parse_progress, records.encode_progress),
    "stats": (records.parse_stats, records.encode_stats),
    "desired": (records.parse_desired, records.encode_desired),
    "incident": (recovery_records.parse_incident, recovery_records.encode_incident),
    "plans": (recovery_records.parse_plan, recovery_records.encode_plan),
    "poison": (records.parse_poison, records.encode_poison),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_example_of_a_record_is_what_is_written(name: str) -> None:
    """It has every field, and comes out of parser and encoder as it is on the page."""
    parse, encode = RECORDS[name]
    assert json.loads(encode(parse(json.dumps(EXAMPLES[name]).encode()))) == EXAMPLES[name]
