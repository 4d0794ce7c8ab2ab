"""The image: what the Dockerfile says, and that its steps make something that starts."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.dockerfile import USER, Build, entrypoint, parse

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "Dockerfile").read_text()
STAGES = parse(TEXT)
FINAL = STAGES[-1]
LOCK = runpy.run_path(str(ROOT / "docker" / "lock.py"))
LOCKS = ("build", "requirements", "demo", "dev")


def locked(part: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by name."""
    text = (ROOT / "docker" / f"{part}.lock").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {words[0].split("==")[0]: (words[0].split("==")[1], words[1:]) for words in lines}


class Installed(Mapping[str, Any]):
    """Metadata of what is installed here, as pip reports it."""

    def __getitem__(self, name: str) -> Any:
        return {"requires_dist": distribution(name).requires or ()}

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def test_the_image_is_built_in_stages_on_a_pinned_base_and_runs_without_root() -> None:
    assert len(STAGES) == 2 and {stage.base for stage in STAGES} == {"${BASE}"}
    assert re.search(r"^ARG BASE=python:\d+\.\d+\.\d+-slim-\w+$", TEXT, re.MULTILINE)
    assert FINAL.last("USER") == f"{USER}:{USER}"
    assert entrypoint(FINAL) == ["/opt/reprise/bin/python", "-m", "reprise.controller.image"]
    assert all(
        "http" not in s.arguments and "apt" not in s.arguments for stage in STAGES for s in stage.steps
    )
    installs = [s.arguments for s in STAGES[0].steps if "pip install" in s.arguments]
    assert len(installs) == 3
    assert all("--require-hashes" in i or "--no-index --no-deps" in i for i in installs)
    assert all("--no-build-isolation" in i for i in installs[1:]), "isolation would fetch a build backend"


def test_nothing_is_copied_that_the_ignore_file_keeps_out() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for step in STAGES[0].steps:
        if step.word == "COPY":
            assert set(step.arguments.split()[:-1]) <= allowed, step.arguments


@pytest.mark.parametrize(
    ("part", "extras"),
    [
        ("requirements", ("s3", "gcs", "azure", "registry")),
        ("demo", ("s3", "gcs", "azure", "registry", "demo")),
        ("dev", ("s3", "gcs", "azure", "registry", "demo", "dev")),
    ],
)
def test_the_locks_satisfy_the_project(part: str, extras: tuple[str, ...]) -> None:
    found = locked(part)
    for need in LOCK["wanted"](extras):
        assert need.specifier.contains(found[canonicalize_name(need.name)][0]), f"{need}: make lock"
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for need in map(Requirement, build):
        assert need.specifier.contains(locked("build")[need.name][0])


@pytest.mark.parametrize("part", ["requirements", "demo"])
def test_the_locks_of_the_image_name_all_that_it_needs_and_nothing_else(part: str) -> None:
    extras = LOCK["PARTS"][part]
    assert set(locked(part)) == LOCK["closure"](LOCK["wanted"](extras), Installed()), "run make lock"


@pytest.mark.parametrize("part", LOCKS)
def test_everything_in_a_lock_has_hashes_and_no_address(part: str) -> None:
    text = (ROOT / "docker" / f"{part}.lock").read_text()
    assert "://" not in text and "--index" not in text and "file:" not in text
    for name, (version, hashes) in locked(part).items():
        assert version and hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", mark) for mark in hashes), name


def test_locks_agree_with_each_other() -> None:
    versions: dict[str, set[str]] = {}
    for part in LOCKS:
        for name, (version, _) in locked(part).items():
            versions.setdefault(name, set()).add(version)
    assert not {name: found for name, found in versions.items() if len(found) > 1}
    assert set(locked("requirements")) <= set(locked("demo")) <= set(locked("dev"))


def test_ci_installs_by_hash() -> None:
    assert "make setup LOCKED=1" in (ROOT / ".ci" / "run").read_text()
    recipe = (ROOT / "Makefile").read_text()
    assert "--require-hashes --no-build-isolation -r docker/dev.lock" in recipe


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    found = Build(tmp_path_factory.mktemp("image"), ROOT)
    for stage in STAGES:
        found.carry_out(stage)
    yield found


def isolated(build: Build, *arguments: str) -> str:
    """Output of the entrypoint with these arguments, as the image's user, without network."""
    done = build.run(
        FINAL.name,
        [*entrypoint(FINAL), *arguments],
        environment=FINAL.environment(),
        isolated=True,
        timeout_s=120,
    )
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.wide
def test_its_steps_make_an_image_whose_roles_start_without_network_and_without_root(build: Build) -> None:
    assert isolated(build, "no-such-role").startswith("2\nusage")
    for role in ("operator", "driver", "zookeeper", "prove"):
        assert isolated(build, role, "--help").startswith("0\nusage"), role
    assert "SPARK_EXECUTOR" in isolated(build, "executor"), "an executor says what Spark has not told it"


SPARK = """
from pyspark import SparkContext
import os
sc = SparkContext("local[1]", conf=None)
print("sum", sc.parallelize(range(10)).sum(), "uid", os.getuid())
sc.stop()
"""


@pytest.mark.slow
@pytest.mark.wide
def test_spark_runs_in_it_with_the_java_that_it_carries(build: Build) -> None:
    environment = FINAL.environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": "/tmp"}
    done = build.run(
        FINAL.name, [entrypoint(FINAL)[0], "-c", SPARK], environment=environment, isolated=True, timeout_s=300
    )
    assert f"sum 45 uid {USER}" in done.stdout, done.stderr
    assert FINAL.environment()["JAVA_HOME"] == "/opt/reprise/java"


ZOOKEEPER = """
import os, subprocess, sys, time
os.environ.update(POD_NAME="z-0", POD_IP="127.0.0.1", REPRISE_ZK_SERVERS="z-0.z:2181", REPRISE_ZK_DATA="/tmp/zk-of-image")
role = [sys.executable, "-m", "reprise.controller.image", "zookeeper"]
server = subprocess.Popen(role)
asks = {word: 1 for word in ("ruok", "srvr")}
deadline = time.monotonic() + 90
while any(asks.values()) and time.monotonic() < deadline:
    asks = {word: subprocess.run([*role, f"--ask={word}"]).returncode for word in asks}
print("asks", asks)
server.kill()
"""


@pytest.mark.slow
@pytest.mark.wide
def test_zookeeper_of_the_image_answers_its_probes(build: Build) -> None:
    done = build.run(
        FINAL.name,
        [entrypoint(FINAL)[0], "-c", ZOOKEEPER],
        environment=FINAL.environment(),
        isolated=True,
        timeout_s=300,
    )
    assert "asks {'ruok': 0, 'srvr': 0}" in done.stdout, done.stderr


def wheel(folder: Path, name: str, needs: str) -> Path:
    """A package of one module that needs another one."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "WORD = 'needed'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {needs}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    records = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": records}.items():
            archive.writestr(file, text)
    return path


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize(("needs", "taken"), [("pyarrow", True), ("pyarrow<1", False)])
def test_an_image_built_on_it_has_ones_own_code_and_packages_and_our_versions(
    build: Build, needs: str, taken: bool, tmp_path: Path
) -> None:
    """The Dockerfile of `reprise init`, with a package that the index need not have."""
    (stage,) = parse((ROOT / "examples" / "start" / "Dockerfile").read_text())
    stage.name = f"derived-{taken}"
    for name in ("my_operators.py", "requirements.txt"):
        shutil.copy(ROOT / "examples" / "start" / name, tmp_path / name)
    with (tmp_path / "requirements.txt").open("a") as requirements:
        requirements.write(f"{wheel(tmp_path / 'wheels', 'needed', needs)}\n")
    derived = Build(build.folder, tmp_path)
    if not taken:
        with pytest.raises(subprocess.CalledProcessError):
            derived.carry_out(stage, FINAL)
        return
    derived.carry_out(stage, FINAL)
    assert stage.last("USER") == FINAL.last("USER"), "not root"
    program = (
        "import my_operators, needed, reprise.contract; print(my_operators.Record.__name__, needed.WORD)"
    )
    done = derived.run(
        stage.name,
        [entrypoint(FINAL)[0], "-c", program],
        environment=FINAL.environment() | stage.environment(),
        isolated=True,
        timeout_s=120,
    )
    assert done.stdout == "Record needed\n", done.stderr
