"""The control plane's programs: unpacked if an archive has the right sum, else built; a machine without Go gets an error."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from tools.testbed import build


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache on a machine without Go and without an index of packages."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("REPRISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setenv(build.PREBUILT, str(tmp_path))
    return tmp_path / "cache"


def archive(folder: Path) -> str:
    """One with a file for etcd; its SHA-256."""
    (folder / "etcd").write_text("a program")
    made = folder / f"controlplane-{build.key()}.tar.xz"
    with tarfile.open(made, "w:xz") as packed:
        packed.add(folder / "etcd", "etcd")
    return hashlib.sha256(made.read_bytes()).hexdigest()


@pytest.mark.usefixtures("cache")
def test_an_archive_with_the_right_sum_is_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(build.PREBUILT_SHA256, build.key(), archive(tmp_path))
    assert (build.ensure() / "etcd").read_text() == "a program"


def test_an_archive_with_another_sum_is_not(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = archive(tmp_path)
    with pytest.raises(build.BuildError):
        build.ensure()
    assert found in capsys.readouterr().err
    assert not list(cache.rglob("etcd"))


@pytest.mark.usefixtures("cache")
def test_a_machine_without_go_and_without_the_package_that_brings_it_is_told_so() -> None:
    with pytest.raises(build.BuildError, match=r"Go \(1.24 or newer\) is needed"):
        build.ensure()
