"""What is published of a version: the pieces are opened and looked at, and a tree that is not fit for it is refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import Parser
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.support.chart import helm
from tests.support.dockerfile import parse
from tools.release import ROOT, SUMS, URL, ReleaseError, agree, let_through, make, moment
from tools.testbed.clients import ensure

EPOCH = 1_700_000_000
FIELDS = (
    "Name", "Version", "Requires-Python", "License-Expression", "Requires-Dist", "Provides-Extra", "Project-URL",
)  # fmt: skip
NORMAL: dict[str, Callable[[str], object]] = {"Requires-Dist": Requirement, "Requires-Python": SpecifierSet}
"""Fields whose parts setuptools writes in an order of its own."""


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    when = {**os.environ, "GIT_COMMITTER_DATE": f"@{EPOCH} +0000", "GIT_AUTHOR_DATE": "@1 +0000"}
    ours = ["-c", "core.excludesFile=/dev/null"]
    subprocess.run(["git", "-C", str(folder), *who, *ours, *words], check=True, capture_output=True, env=when)


def user_sets(monkeypatch: pytest.MonkeyPatch, key: str, value: str) -> None:
    """A setting of git as in the file of a user."""
    for name, text in {"COUNT": "1", "KEY_0": key, "VALUE_0": value}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", text)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of one commit with the files as they are here now, committed or not."""
    folder = tmp_path_factory.mktemp("clone") / "clone"
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    (folder / "charts/reprise/templates/web.yaml.orig").write_text("what a merge has left")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all of it")
    (folder / ".git/info/exclude").write_text("mine.*\n")
    for part in ("reprise", "algorithms", "charts/reprise/templates", "crds"):
        for name in ("mine.py", "mine.yaml"):
            (folder / part / name).write_text("mine: what git ignores\n")
    return folder


def tracked(clone: Path) -> list[str]:
    """The files of the commit."""
    listed = ["git", "-C", str(clone), "ls-files"]
    return subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def made(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SOURCE_DATE_EPOCH", raising=False)
        folder = tmp_path_factory.mktemp("release")
        pieces = make(folder, clone)
    assert sorted(folder.iterdir()) == sorted(pieces)
    assert len(pieces) == 9
    return folder


def piece(made: Path, pattern: str) -> Path:
    (found,) = made.glob(pattern)
    return found


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {one.name: one for one in archive.getmembers()}


def wheel_files(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
@pytest.mark.wide
def test_the_sums_are_those_of_the_pieces(made: Path) -> None:
    lines = dict(reversed(line.split()) for line in (made / SUMS).read_text().splitlines())  # type: ignore[arg-type]
    assert lines.keys() == {path.name for path in made.iterdir()} - {SUMS}
    for name, digest in lines.items():
        assert hashlib.sha256((made / name).read_bytes()).hexdigest() == digest
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=made, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.wide
def test_the_same_commit_gives_the_same_bytes_at_another_time_and_place_and_for_another_user(
    made: Path, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    before = os.umask(0o077)
    try:
        git(tmp_path, "clone", "--quiet", str(clone), "elsewhere")
        user_sets(monkeypatch, "core.autocrlf", "true")
        again = {path.name: path.read_bytes() for path in make(tmp_path / "out", tmp_path / "elsewhere")}
    finally:
        os.umask(before)
    assert again == {path.name: path.read_bytes() for path in made.iterdir()}


@pytest.mark.slow
@pytest.mark.wide
def test_the_source_distribution_is_the_commit_and_builds_a_wheel_of_the_same_content(
    made: Path, clone: Path, tmp_path: Path
) -> None:
    sdist, wheel = piece(made, "*streams-*.tar.gz"), piece(made, "*.whl")
    top = sdist.name.removesuffix(".tar.gz")
    found = members(sdist)
    assert found.keys() == {f"{top}/{name}" for name in (*tracked(clone), "PKG-INFO")}
    assert {(one.mtime, one.uid, one.uname) for one in found.values()} == {(EPOCH, 0, "")}
    assert {one.name for one in found.values() if one.issym()} >= {f"{top}/reprise/controller"}

    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index"]
    offline = ["--no-deps", "--no-build-isolation", f"--wheel-dir={tmp_path}"]
    subprocess.run([*pip, *offline, sdist], check=True)  # with setuptools, as whoever installs from source
    ours, theirs = wheel_files(wheel), wheel_files(piece(tmp_path, "*.whl"))
    info = f"{top}.dist-info/"
    assert {n: d for n, d in theirs.items() if not n.startswith(info)} == {
        n: d for n, d in ours.items() if not n.startswith(info)
    }
    parsed = [Parser().parsestr(files[f"{info}METADATA"].decode()) for files in (ours, theirs)]
    first, second = (
        {field: {NORMAL.get(field, str)(one) for one in message.get_all(field, ())} for field in FIELDS}
        for message in parsed
    )
    assert first == second
    assert len(first["Requires-Dist"]) > 20
    assert parsed[0].get_payload() == parsed[1].get_payload()
    scripts = [sorted(files[f"{info}entry_points.txt"].decode().split("\n")) for files in (ours, theirs)]
    assert scripts[0] == scripts[1]


@pytest.mark.slow
@pytest.mark.wide
def test_the_wheel_has_what_a_newcomer_uses_and_nothing_that_git_does_not_know(made: Path) -> None:
    names = set(wheel_files(piece(made, "*.whl")))
    shipped = "reprise/shipped"
    assert {
        "reprise/py.typed", f"{shipped}/start/topology.yaml", f"{shipped}/charts/reprise/Chart.yaml",
        f"{shipped}/crds/streamtopologies.yaml", f"{shipped}/examples/topology2.yaml",
    } <= names  # fmt: skip
    assert not [name for name in names if "__pycache__" in name or "mine" in name]


@pytest.mark.slow
@pytest.mark.wide
def test_the_chart_is_what_helm_takes_without_what_helmignore_names(made: Path, clone: Path) -> None:
    package = piece(made, "reprise-[0-9]*.tgz")
    rules = (clone / "charts/reprise/.helmignore").read_text().split()
    names = {name.removeprefix("reprise/") for name in members(package)}
    below = "charts/reprise/"
    committed = {name.removeprefix(below) for name in tracked(clone) if name.startswith(below)}
    ignored = {name for name in committed if any(fnmatch(Path(name).name, rule) for rule in rules)}
    assert ignored == {"templates/web.yaml.orig"}
    assert names == committed - ignored
    chart = yaml.safe_load(helm("show", "chart", str(package)))
    assert chart == yaml.safe_load((ROOT / "charts/reprise/Chart.yaml").read_text())
    assert helm("lint", str(package), "--set", "watch.allowOwnNamespace=true").count("[ERROR]") == 0


@pytest.mark.slow
@pytest.mark.wide
def test_the_crds_are_those_of_the_chart(made: Path) -> None:
    found = list(yaml.safe_load_all(piece(made, "*crds*.yaml").read_text()))
    assert found == list(yaml.safe_load_all(helm("show", "crds", str(piece(made, "reprise-[0-9]*.tgz")))))
    assert [one["kind"] for one in found] == ["CustomResourceDefinition"] * 3


@pytest.mark.slow
@pytest.mark.wide
def test_the_image_context_has_what_the_dockerfile_copies_and_no_more(made: Path, clone: Path) -> None:
    names = set(members(piece(made, "*context*.tar.gz")))
    copied = [
        source
        for stage in parse((ROOT / "Dockerfile").read_text())
        for step in stage.steps
        if step.word == "COPY" and "from" not in step.flags
        for source in step.arguments.split()[:-1]
    ]
    assert len(copied) > 10
    for source in copied:
        assert [name for name in names if name == source or name.startswith(f"{source}/")], source
    assert names <= set(tracked(clone))
    over = {n for n in names if not any(n == source or n.startswith(f"{source}/") for source in copied)}
    assert over == {"Dockerfile", ".dockerignore"}


@pytest.mark.slow
@pytest.mark.wide
def test_the_list_of_what_the_image_holds_is_that_of_its_lock(made: Path) -> None:
    found = json.loads(piece(made, "*.cdx.json").read_text())
    locked = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "docker/requirements.lock").read_text(), re.MULTILINE)
    assert {(one["name"], one["version"]) for one in found["components"]} == set(locked)
    project = found["metadata"]["component"]
    assert f"{project['name']}-{project['version']}".replace("-", "_", 1) in piece(made, "*.whl").name
    assert str(ROOT) not in json.dumps(found)


@pytest.mark.slow
@pytest.mark.wide
def test_kubectl_finds_the_plugin_as_krew_unpacks_it_and_it_runs_what_it_has_set_up(
    made: Path, tmp_path: Path
) -> None:
    archive = piece(made, "kubectl-reprise-*.tar.gz")
    manifest = yaml.safe_load(piece(made, "reprise-krew-*.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"{URL}/{archive.name}"
    store, bin_folder = tmp_path / "store", tmp_path / "bin"
    with tarfile.open(archive) as packed:
        packed.extractall(store, filter="data")
    assert {path.name for path in store.iterdir()} == {
        platform["bin"], piece(made, "*.whl").name, "LICENSE",
    }  # fmt: skip
    assert (store / piece(made, "*.whl").name).read_bytes() == piece(made, "*.whl").read_bytes()
    bin_folder.mkdir()
    (bin_folder / "kubectl-reprise").symlink_to(store / platform["bin"])  # as Krew does
    version = manifest["spec"]["version"].removeprefix("v")
    environment = {
        **os.environ, "PATH": f"{bin_folder}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "REPRISE_PLUGIN_HOME": str(tmp_path / "home"),
        "KUBECONFIG": str(nowhere(tmp_path)), "REPRISE_PLUGIN_PYTHON": sys.executable, "NO_COLOR": "1",
    }  # fmt: skip
    environment.pop("PYTHONPATH", None)

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(ensure() / "kubectl"), *words]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )

    assert str(bin_folder / "kubectl-reprise") in kubectl("plugin", "list").stdout
    without = kubectl("reprise", "list")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith(
        f"error: kubectl reprise {version} is not set up: `kubectl reprise setup`"
    )
    assert "options of pip install" in kubectl("reprise", "setup", "--help").stdout
    refused = kubectl("reprise", "setup", "--no-such-option")
    assert refused.returncode != 0 and not any((tmp_path / "home").glob("*")), "nothing half made is left"
    done = kubectl("reprise", "setup", "--no-index", "--no-deps")
    assert done.returncode == 0, done.stderr
    (site,) = (tmp_path / "home" / f"kubectl-{version}").glob("lib/python*/site-packages")
    (site / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # what pip would have fetched
    said = kubectl("reprise", "--version")
    assert said.returncode == 0 and said.stdout.startswith("kubectl-reprise") and version in said.stdout, said
    asked = kubectl("reprise", "list")
    assert asked.returncode == 4 and asked.stderr.startswith("error: ") and asked.stderr.count("\n") == 1, (
        asked
    )


def nowhere(folder: Path) -> Path:
    """A kubeconfig of a server that does not answer."""
    path = folder / "kubeconfig"
    cluster = {"name": "gone", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "gone", "context": {"cluster": "gone", "user": "gone"}}
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "gone", "clusters": [cluster], "contexts": [context],
        "users": [{"name": "gone", "user": {}}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.slow
@pytest.mark.wide
def test_a_time_that_is_set_goes_before_that_of_the_commit(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    with pytest.raises(ReleaseError, match=r"SOURCE_DATE_EPOCH: .* '1'"):
        make(tmp_path / "out", clone)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.wide
def test_a_tree_with_changes_or_with_files_that_git_does_not_know_is_refused(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_sets(monkeypatch, "status.showUntrackedFiles", "no")
    git(tmp_path, "clone", "--quiet", str(clone), "changed")
    for name in ("README.md", "new.txt"):
        with (tmp_path / "changed" / name).open("a") as file:
            file.write("more\n")
        with pytest.raises(ReleaseError, match=rf"not committed:(\n.*)*{name}"):
            make(tmp_path / "out", tmp_path / "changed")
        git(tmp_path / "changed", "checkout", "--quiet", "README.md")
    assert not (tmp_path / "out").exists()


def tree(
    folder: Path, changelog: str = "1.2.0", chart: str = "1.2.0", app: str = "1.2.0", readme: str = "1.2.0"
) -> Path:
    (folder / "charts/reprise").mkdir(parents=True)
    (folder / "CHANGELOG.md").write_text(f"# Changes\n\n## {changelog} (not released)\n\n## 1.1.0\n")
    (folder / "README.md").write_text(f"# A title\n\n## Status\n\nVersion {readme}, in use.\n")
    (folder / "charts/reprise/Chart.yaml").write_text(f"version: {chart}\nappVersion: {app}\n")
    return folder


def test_places_that_agree_are_taken(tmp_path: Path) -> None:
    agree(tree(tmp_path), "1.2.0")


@pytest.mark.parametrize(
    ("place", "named"),
    [("changelog", "CHANGELOG.md"), ("chart", ", version"), ("app", "appVersion"), ("readme", "README.md")],
)
def test_a_version_that_is_not_that_of_all_places_is_refused(tmp_path: Path, place: str, named: str) -> None:
    with pytest.raises(ReleaseError, match=rf"1\.2\.0.*{named}.*: 1\.1\.0"):
        agree(tree(tmp_path, **{place: "1.1.0"}), "1.2.0")


def test_a_changelog_without_a_version_is_refused(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n")
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md, its first section: none"):
        agree(tmp_path, "1.2.0")


def test_a_folder_with_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ReleaseError, match=r"--out: .* is not empty"):
        make(tmp_path)
    assert (tmp_path / "mine").read_text() == "kept"


def test_what_is_no_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ReleaseError, match=r"git status: .*not a git repository"):
        make(tmp_path / "out", tmp_path)


@pytest.mark.parametrize("text", ["*\n!docs/*.md\n", "!docs\n", "*\n!docs\ndocs/private\n"])
def test_rules_for_the_image_that_are_not_understood_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / ".dockerignore").write_text(text)
    with pytest.raises(ReleaseError, match="dockerignore"):
        let_through(tmp_path)


@pytest.mark.parametrize("text", ["", "today", "-1", "1.5", "0", "315532799", "99999999999", "\u0661" * 10])
def test_a_time_that_a_wheel_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match="SOURCE_DATE_EPOCH"):
        moment(text)


def test_a_time_from_1980_on_is_taken() -> None:
    assert (moment("315532800"), moment("1700000000")) == (315_532_800, 1_700_000_000)
