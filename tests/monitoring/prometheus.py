"""A real Prometheus on loopback for one test: scrapes what it is told to, evaluates rules, answers queries."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.monitoring import tools
from tools.testbed.waiting import until

SCRAPE_S = 1


class Prometheus:
    """A context manager; `folder` gets its data, its configuration and its log."""

    def __init__(self, folder: Path, port: int, targets: Mapping[str, Sequence[int]], rules: str) -> None:
        """`targets`: ports of 127.0.0.1 by the name of the job; `rules`: text of a rules file."""
        folder.mkdir(parents=True)
        self.url = f"http://127.0.0.1:{port}"
        (folder / "rules.yaml").write_text(rules)
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{p}" for p in ports]}]}
                for job, ports in targets.items()
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        self._command = [
            str(tools.ensure() / "prometheus"),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self.wait_for(self._ready, "Prometheus to answer", 300)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def query(self, expr: str) -> list[Mapping[str, Any]]:
        """The vector that an expression gives now."""
        answer = self._get("/api/v1/query", query=expr)
        result = answer["data"]["result"]
        return result if answer["data"]["resultType"] == "vector" else [{"value": result}]

    def query_range(self, expr: str, seconds: int) -> list[Mapping[str, Any]]:
        """The series that an expression has in the last `seconds`."""
        now = time.time()
        answer = self._get(
            "/api/v1/query_range", query=expr, start=str(now - seconds), end=str(now), step="1"
        )
        found: list[Mapping[str, Any]] = answer["data"]["result"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        return {s["metric"]["alertname"] for s in self.query('ALERTS{alertstate="firing"}')}

    def wait_firing(self, names: set[str], timeout_s: float) -> None:
        """Until all of them fire at the same time."""
        self.wait_for(
            lambda: names <= self.firing(), f"{sorted(names)} to fire", timeout_s, lambda: str(self.firing())
        )

    def wait_for(
        self, good: Callable[[], bool], what: str, timeout_s: float, said: Callable[[], str] = str
    ) -> None:
        """Polls; AssertionError with `said` when the time is up."""

        def looks() -> bool:
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            return good()

        until(looks, what, timeout_s, said, poll_s=SCRAPE_S / 2)

    def _ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str, **query: str) -> Any:
        with urlopen(f"{self.url}{path}?{urlencode(query)}", timeout=30) as answer:
            return json.load(answer)
