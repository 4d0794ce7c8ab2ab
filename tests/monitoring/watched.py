"""A run on a real cluster that is served to a Prometheus: the stage on which alerts are made to fire.

The run is `run_topology` with the metrics of `reprise run --metrics`; the test holds the cluster in its own hands, so that
it breaks things when it has seen what it waits for, and not by the clock.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.run.config import RunConfig, RunResult
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.observability.alerts import defaults
from reprise.controller.observability.metrics.endpoint import RunMetrics
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import load_text
from tests.monitoring.prometheus import Prometheus
from tests.support.ports import ports_in_a_row
from tests.support.watched import watched
from tools.alerts_render import rules_file
from tools.testbed.waiting import until

TOPOLOGY = watched("200m", "840m", '"2"')
"""Two of four nodes host `hot` alone, and a query of it fits what the other two have free in sum, and on neither of them;
the buffers of the parser are full after some batches that nobody takes, and then `cold` shows nothing, too.
What is declared is far more than what is used, so that measurements on a busy machine change nothing."""

SHORT = defaults() | {
    "correlatedFor": "1s", "stalledWindow": "6s", "stalledFor": "2s", "capacityFor": "2s", "highPriorityFor": "1s",
    "scatteredFor": "2s", "behindFor": "1s",
    "checkpointIntervals": "2", "checkpointGrace": "2", "checkpointFor": "1s", "bufferFor": "1s",
    "infeasibleFor": "1s",
    "zookeeperFor": "1s", "controllerFor": "1s", "driverAge": "4", "driverFor": "1s", "pausedFor": "2s",
}  # fmt: skip
"""Thresholds for a test that has minutes and not hours; `bufferFill` is the real one."""


class Watched:
    """The run, its cluster and its Prometheus; a context manager that ends all three."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.cluster, self.out = cluster, folder / "out"
        self._folder = folder
        self.resource = load_text(TOPOLOGY)
        self.state: RunState | None = None
        self.result: RunResult | None = None
        self._enough = threading.Event()
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        run_port, driver_port, own_port = ports_in_a_row(3)
        self.config = RunConfig(
            resource=self.resource,
            out=self.out,
            cluster=self.cluster,
            metrics_port=run_port,
            log_format="json",
            timeout_s=None,
        )
        metrics = RunMetrics(self.resource)
        with ExitStack() as ends:
            ends.enter_context(metrics.served(run_port))
            targets = {"reprise": (run_port, driver_port)}
            folder = self._folder / "prometheus"
            self.prometheus = ends.enter_context(Prometheus(folder, own_port, targets, rules_file(SHORT)))

            def watch(state: RunState, _: object) -> None:
                self.state = state
                metrics.watch(state)
                if self._enough.is_set():
                    raise KeyboardInterrupt

            self._thread = threading.Thread(target=self._run, args=(watch,))
            self._thread.start()
            ends.callback(self._thread.join)
            ends.callback(self._enough.set)
            self._ends = ends.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def _run(self, watch: Callable[[RunState, object], None]) -> None:
        self.result = run_topology(self.config, watch)

    def end(self) -> RunResult:
        """Ctrl-C, and the result with its report."""
        self._enough.set()
        self._thread.join()
        assert self.result is not None
        return self.result

    def wait_for(self, good: Callable[[RunState], bool], what: str, timeout_s: float) -> None:
        """Until the run's state is as wanted."""

        def reached() -> bool:
            assert self.result is None, f"the run has ended while waiting for {what}: {self.result}"
            return self.state is not None and good(self.state)

        until(reached, what, timeout_s, lambda: f"logs in {self.out}", poll_s=0.1)

    def signal(self, module: str, number: signal.Signals) -> None:
        """To the run's process of this module, which is a child of the test's own process."""
        command = [sys.executable, "-m", module]
        (found,) = [child for child in psutil.Process().children() if _command_of(child)[:3] == command]
        found.send_signal(number)


def _command_of(process: psutil.Process) -> list[str]:
    """Nothing of one that has ended, also where nobody has waited for it yet, as with nodes that were just killed."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:  # also what a zombie raises
        return []
