"""The newcomer: a wheel in an environment of its own, an empty folder outside of the clone, and a topology of one's own that
loses two of its four nodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools.wheel import build


class Newcomer:
    """An environment with the wheel and nothing of the clone, and the folder in which commands are given."""

    def __init__(self, folder: Path) -> None:
        self.environment, self.work = folder / "environment", folder / "work"
        self.work.mkdir()
        wheel = build(folder)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.environment], check=True)
        python = self.environment / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        # What it depends on is in the environment of the tests, whose own .pth files, the clone's among them, are not read.
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = self.environment / "lib" / version / "site-packages"
        subprocess.run(
            [*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel], check=True
        )
        (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def run(self, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        bin_folder = self.environment / "bin"
        variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.run(
            [bin_folder / words[0], *words[1:]],
            cwd=self.work,
            env=variables | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def says(self, *words: str, seconds: float = 120.0) -> str:
        done = self.run(*words, seconds=seconds)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    return Newcomer(tmp_path_factory.mktemp("newcomer"))


@pytest.mark.slow
def test_what_is_installed_is_the_wheel_and_nothing_of_the_clone(newcomer: Newcomer) -> None:
    program = (
        "import json, reprise, reprise.shipped as s, importlib.util as u;"
        "print(json.dumps([reprise.__file__, s.CHART.joinpath('Chart.yaml').is_file(),"
        "sorted(p.name for p in s.CRDS.iterdir()), u.find_spec('examples'), u.find_spec('controller')]))"
    )
    where, chart, crds, *outside = json.loads(newcomer.says("python", "-c", program))
    assert Path(where).is_relative_to(newcomer.environment)
    assert chart
    assert crds == ["incidents.yaml", "recoveryplans.yaml", "streamtopologies.yaml"]
    assert outside == [None, None]
    assert (Path(where).parent / "py.typed").is_file()


@pytest.mark.slow
@pytest.mark.wide
def test_from_the_wheel_to_ones_own_topology_that_loses_half_of_its_nodes(newcomer: Newcomer) -> None:
    assert "next: cd mine; reprise validate" in newcomer.says("reprise", "init", "mine")
    newcomer.work /= "mine"
    assert "valid; 6 partitions, 4 queries" in newcomer.says("reprise", "validate", "--try", "20")
    assert "3 passed" in newcomer.says("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    again = newcomer.run("reprise", "init")
    assert (again.returncode, "already" in again.stderr) == (2, True)

    rate = ("--set", "sources[tweets].with.batches=60")
    told = newcomer.says("reprise", "up", "--kill", "2", "--no-web", *rate, seconds=300)
    assert "done" in told
    out = newcomer.work / "out" / "run-1"
    report = json.loads((out / "incident.json").read_text())
    incident, *_ = report["incidents"]
    assert len(incident["queries"]) > 0  # something was lost, and is back
    assert [action["action"] for action in json.loads((out / "run.json").read_text())["actions"]].count(
        "kill"
    ) == 1
    assert "identical: 244 pieces" in newcomer.says("reprise", "verify", "--out", "out/run-1")
    history = newcomer.says("reprise", "history", "--out", "out/run-1")
    assert report["timeline"]
    assert all(line["what"] in history for line in report["timeline"])

    shown = out / "sink" / "record" / "0"
    victim = max(shown.glob("batch-*"), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes() + b"\n")  # a doubled row would be seen
    found = newcomer.run("reprise", "verify", "--out", "out/run-1")
    assert (found.returncode, "different (1): record.0 batch" in found.stdout) == (1, True)
    shutil.rmtree(out)
