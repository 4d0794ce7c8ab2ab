"""Code out of a ConfigMap: it is what the topology says, or nothing starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.controller.agent import user_code
from reprise.controller.errors import StartError
from reprise.controller.image import __main__ as image

FILES = {"my_operators.py": b"LEVEL = 1\n", "table.json": b"{}", "a-b.txt": b"\xff"}


def mounted(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    """As a kubelet does it: links to links to the version that counts."""
    version = folder / "..2026_11_25"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, data in files.items():
        (version / name).write_bytes(data)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def environment(folder: Path, sha256: str = user_code.hash_of(FILES)) -> dict[str, str]:
    return {user_code.FOLDER: str(folder), user_code.SHA256: sha256}


def test_the_hash_is_that_of_a_shell(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        ["sh", "-c", "sha256sum * | sha256sum"],
        cwd=tmp_path, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split()[0] == user_code.hash_of(FILES)


def test_it_is_copied_and_imported_first(tmp_path: Path) -> None:
    folder, copied = mounted(tmp_path / "mounted"), tmp_path / "copied"
    found = environment(folder) | {"PYTHONPATH": "/image"}
    user_code.take(found, copied)
    assert found["PYTHONPATH"] == f"{copied}{os.pathsep}/image"
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == FILES
    version = folder / "..2026_11_25"
    (version / "my_operators.py").write_bytes(b"LEVEL = 2\n")  # as it would be changed in place
    done = subprocess.run(
        [sys.executable, "-c", "import my_operators; print(my_operators.LEVEL)"],
        env=found, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "1\n"


def test_what_an_earlier_start_has_left_is_not_imported(tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / "old.py").touch()
    user_code.take(environment(mounted(tmp_path / "mounted")), copied)
    assert {path.name for path in copied.iterdir()} == set(FILES)


@pytest.mark.parametrize(
    "files",
    [
        FILES | {"my_operators.py": b"LEVEL = 2\n"},
        FILES | {"more.py": b""},
        {"my_operators.py": FILES["my_operators.py"]},
        {},
    ],
    ids=["changed", "more", "fewer", "none"],
)
def test_other_code_is_refused_and_nothing_is_copied(tmp_path: Path, files: dict[str, bytes]) -> None:
    folder, copied = mounted(tmp_path / "mounted", files), tmp_path / "copied"
    found = environment(folder)
    with pytest.raises(StartError, match=r"spec\.kubernetes\.code\.sha256: .*" + user_code.hash_of(files)):
        user_code.take(found, copied)
    assert not copied.exists() and "PYTHONPATH" not in found


@pytest.mark.parametrize(
    "name",
    [
        "json.py",
        "json.pyc",
        "json.cpython-311-x86_64-linux-gnu.so",
        "reprise.py",
        "sitecustomize.py",
        "pyspark.py",
        "urllib3.py",
        "prometheus_client.py",
    ],
)
def test_a_module_that_would_hide_another_is_refused(tmp_path: Path, name: str) -> None:
    files = {name: b""}
    with pytest.raises(StartError, match=f"{name} would hide"):
        user_code.take(environment(mounted(tmp_path, files), user_code.hash_of(files)), tmp_path / "copied")


def test_data_may_have_the_name_of_a_module(tmp_path: Path) -> None:
    files = {"json.txt": b"", "numpy": b"", "my.json": b""}
    user_code.take(environment(mounted(tmp_path / "m", files), user_code.hash_of(files)), tmp_path / "copied")
    assert {path.name for path in (tmp_path / "copied").iterdir()} == set(files)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be read"):
        user_code.take(environment(tmp_path / "none"), tmp_path / "copied")


def test_without_code_nothing_changes(tmp_path: Path) -> None:
    found = {"PYTHONPATH": "/image"}
    user_code.take(found, tmp_path / "copied")
    assert found == {"PYTHONPATH": "/image"} and not (tmp_path / "copied").exists()


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_a_pod_of_other_code_says_so_and_does_not_start(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    last_word = tmp_path / "termination-log"
    last_word.touch()
    monkeypatch.setattr(image, "LAST_WORD", last_word)
    monkeypatch.setattr(sys, "argv", ["image", role])
    for name, value in environment(mounted(tmp_path / "mounted"), "0" * 64).items():
        monkeypatch.setenv(name, value)
    assert image.main() == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("refused: spec.kubernetes.code.sha256: ")
    assert last_word.read_text() == said  # so that it outlives the pod's logs
