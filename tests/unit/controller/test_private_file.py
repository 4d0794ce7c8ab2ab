"""A secret's file is its owner's alone from its first byte on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from reprise.controller.private_file import write_private


@pytest.mark.parametrize("content", ["key: ü\n", "key: ü\n".encode()])
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_only_its_owner_may_read_it_whatever_the_mask(
    tmp_path: Path, content: str | bytes, mask: int
) -> None:
    before = os.umask(mask)
    try:
        write_private(tmp_path / "secret", content)
    finally:
        os.umask(before)
    assert (tmp_path / "secret").read_text(encoding="utf-8") == "key: ü\n"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


@pytest.mark.parametrize("leads_nowhere", [False, True])
def test_what_is_there_is_not_written_to(tmp_path: Path, leads_nowhere: bool) -> None:
    path = tmp_path / "secret"
    if leads_nowhere:
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("old")
    with pytest.raises(FileExistsError):
        write_private(path, "new")
    assert not (tmp_path / "elsewhere").exists()
    assert leads_nowhere or path.read_text() == "old"
