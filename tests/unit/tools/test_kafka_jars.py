"""Jars of the embedded brokers: fetched once, and never used unless their bytes are those of the lock file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from reprise.controller.errors import StartError
from tools.kafka.jars import REPOSITORY_VARIABLE, jar_folder
from tools.kafka.server import with_passwords

JAR = b"not really a jar"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository of one jar on the file system, and a lock file that names it."""
    path = tmp_path / "maven" / "org" / "thing" / "1" / "thing-1.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(JAR)
    monkeypatch.setenv(REPOSITORY_VARIABLE, f"file://{tmp_path}/maven")
    monkeypatch.setenv("REPRISE_CACHE_DIR", str(tmp_path / "cache"))
    lock = f"# a comment\n{hashlib.sha256(JAR).hexdigest()} org/thing/1/thing-1.jar\n"
    (tmp_path / "thing_jars.lock").write_text(lock)
    return path


def test_a_jar_is_fetched_once(repository: Path, tmp_path: Path) -> None:
    said: list[str] = []
    folder = jar_folder("thing", said.append, locks=tmp_path)
    repository.unlink()
    assert jar_folder("thing", said.append, locks=tmp_path) == folder
    assert [p.name for p in folder.iterdir()] == ["thing-1.jar"]
    assert said == ["fetching 1 jars for thing, once for this machine"]


def test_other_bytes_are_refused_and_not_kept(repository: Path, tmp_path: Path) -> None:
    repository.write_bytes(b"something else")
    with pytest.raises(StartError, match=r"thing-1.jar: the repository's file has SHA-256 \w+, expected"):
        jar_folder("thing", locks=tmp_path)
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_repository_that_cannot_be_reached_is_named_by_its_variable(
    repository: Path, tmp_path: Path
) -> None:
    repository.unlink()
    with pytest.raises(StartError, match=REPOSITORY_VARIABLE):
        jar_folder("thing", locks=tmp_path)


def test_brokers_with_passwords_let_in_whom_they_know_and_allow_nothing_by_default() -> None:
    found = with_passwords({"admin": "x", "app": "y"}, "admin")
    assert 'user_app="y"' in found["listener.name.client.plain.sasl.jaas.config"]
    assert "User:app" not in found["super.users"]
    assert found["authorizer.class.name"].endswith("StandardAuthorizer")
