"""`reprise records`: a copy once or again and again, and what is said where one fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import main
from reprise.controller.cli.records_command import command
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer

ROOT, OTHER = "/reprise/default/t", "/reprise/default/u"


@pytest.fixture(autouse=True)
def known(server: MemoryServer) -> MemoryServer:
    server.put(f"{ROOT}/checkpoints/40", b"{}")
    server.put(f"{ROOT}/desired", b"{}")
    return server


def called(*words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)))


def test_a_copy_is_put_at_another_place(tmp_path: Path, known: MemoryServer) -> None:
    file = tmp_path / "t.json"
    saved = called("save", "--zk", "z:1", "--root", ROOT, "--to", file)
    count = re.match(r"(\d+) records of /reprise/default/t in ", saved.output)
    assert saved.exit_code == 0 and count is not None
    loaded = called("load", "--zk", "z:1", "--root", OTHER, "--from", file)
    assert loaded.exit_code == 0, loaded.output
    assert re.match(
        r"\d+ records of /reprise/default/t put at /reprise/default/u; they are \d+ s old", loaded.output
    )
    assert f"{OTHER}/checkpoints/40" in known.znodes


def test_of_several_copies_the_first_that_can_be_read_is_taken(tmp_path: Path) -> None:
    file, damaged = tmp_path / "t.json", tmp_path / "damaged.json"
    called("save", "--zk", "z:1", "--root", ROOT, "--to", file)
    damaged.write_bytes(file.read_bytes()[:-9])
    words = ("load", "--zk", "z:1", "--root", OTHER, "--from", damaged)
    refused = CliRunner().invoke(main, ["records", *map(str, words)])
    assert refused.exit_code == 1 and "damaged.json" in refused.output
    assert called(*words, "--from", file).exit_code == 0
