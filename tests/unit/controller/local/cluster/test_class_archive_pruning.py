"""Class archives that nobody has used lately go when another one is made; those of living JVMs and of makers stay."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reprise.controller.agent.jvm import Jvm
from reprise.controller.local.cluster import class_archive
from reprise.controller.local.cluster.class_archive_pruning import LATELY_S, OPTION, prune
from reprise.controller.local.cluster.process_reaper import ProcessReaper

NOW = time.time()
DAY_S = 86400.0


def archive(folder: Path, name: str, age_s: float, size: int = 10) -> Path:
    """An archive that a start has chosen so many seconds ago, with its lock."""
    path = folder / f"classes-{name}.jsa"
    path.write_bytes(b"x" * size)
    path.chmod(0o444)
    os.utime(path, (NOW - age_s, NOW - age_s))
    path.with_suffix(".lock").touch()
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_ones_used_last_stay_with_their_locks(tmp_path: Path) -> None:
    for age in range(1, 8):
        archive(tmp_path, f"{age}", age * DAY_S)
    (tmp_path / "classes-9.failed").write_text("why")
    (tmp_path / "flights.arrow").write_text("somebody else's")
    assert prune(tmp_path, lambda: NOW, keep=3) == [f"classes-{age}.jsa" for age in (4, 5, 6, 7)]
    kept = {f"classes-{age}.{kind}" for age in (1, 2, 3) for kind in ("jsa", "lock")}
    assert names(tmp_path) == kept | {"classes-9.failed", "flights.arrow"}
    assert prune(tmp_path, lambda: NOW, keep=3) == []


def test_large_ones_are_fewer(tmp_path: Path) -> None:
    for age in range(1, 6):
        archive(tmp_path, f"{age}", age * DAY_S, size=100)
    assert len(prune(tmp_path, lambda: NOW, keep=5, most=250)) == 3
    assert {"classes-1.jsa", "classes-2.jsa"} < names(tmp_path)


def test_what_a_start_has_chosen_lately_stays_though_there_are_more_of_them(tmp_path: Path) -> None:
    for number in range(4):
        archive(tmp_path, f"late{number}", LATELY_S - 60.0 - number)
    archive(tmp_path, "early", LATELY_S + 60.0)
    assert prune(tmp_path, lambda: NOW, keep=1) == ["classes-early.jsa"]


@contextmanager
def living(argument: str) -> Iterator[None]:
    """A process with this on its command line, as a JVM has it."""
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, argument]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield
        finally:
            process.communicate(timeout=300)


def test_the_archive_of_a_living_jvm_stays_until_it_has_ended(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    archive(tmp_path / "cache", "used", 9 * DAY_S)
    archive(tmp_path / "cache", "idle", 8 * DAY_S)
    with living(f"{OPTION}{tmp_path}/link/classes-used.jsa"):
        assert prune(tmp_path / "cache", lambda: NOW, keep=0) == ["classes-idle.jsa"]
    assert prune(tmp_path / "cache", lambda: NOW, keep=0) == ["classes-used.jsa"]


def test_who_makes_one_is_left_alone_and_what_a_dead_maker_has_left_goes(tmp_path: Path) -> None:
    archive(tmp_path, "old", 9 * DAY_S)
    for key in ("old", "dead"):
        (tmp_path / f"classes-{key}.4711").write_bytes(b"half of it")
    with (tmp_path / "classes-old.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert prune(tmp_path, lambda: NOW, keep=0) == ["classes-dead.4711"]
        assert {"classes-old.jsa", "classes-old.4711"} < names(tmp_path)
    assert prune(tmp_path, lambda: NOW, keep=0) == ["classes-old.jsa", "classes-old.4711"]
    assert names(tmp_path) == set()


def test_who_makes_an_archive_removes_what_is_too_much_and_who_finds_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("REPRISE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    before = [archive(tmp_path / "cache", f"{age}", age * DAY_S) for age in range(1, 7)]
    made: list[Path] = []

    def make(_jvm: Jvm, _reaper: ProcessReaper, path: Path, _failure: Path) -> None:
        path.write_bytes(b"new")
        made.append(path)

    monkeypatch.setattr(class_archive, "_make", make)
    jvm = Jvm(tmp_path / "java", tmp_path / "log", home=tmp_path)
    said: list[str] = []
    reaper = ProcessReaper()
    try:
        first = class_archive.ensure_archive(jvm, reaper, said.append)
        assert (made, [path.exists() for path in before]) == ([first], [True] * 4 + [False] * 2)
        assert any("2 class archives" in text for text in said)
        archive(tmp_path / "cache", "more", 5 * DAY_S)
        assert class_archive.ensure_archive(jvm, reaper, said.append) == first
        assert (len(made), (tmp_path / "cache" / "classes-more.jsa").exists()) == (1, True)
    finally:
        reaper.close()
