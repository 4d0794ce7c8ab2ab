"""The command lines of a run's two processes, and the environment that each gets."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from reprise.controller import logs
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.cluster.process_reaper import MARK
from reprise.controller.local.report.layout import Layout
from reprise.controller.local.run.config import RunConfig
from reprise.controller.local.run.services import Service

DRIVER_HEAP_MB = 768
"""The driver schedules tasks and holds no data."""


def services_of(config: RunConfig, layout: Layout, cluster: EmbeddedCluster, root: str) -> dict[str, Service]:
    """Coordinator and driver, not started, in the order in which to start them."""
    common = ["--zk", cluster.zk_hosts, "--root", root, "--topology", str(layout.topology.resolve())]
    environment = {MARK: cluster.token} | _python_path(config, cluster.scratch)
    if config.log_format is not None:
        environment[logs.VARIABLE] = config.log_format
    driver = [
        *(sys.executable, "-m", "reprise.controller.driver", *common),
        *("--master", cluster.master_url),
        *("--sink", str(layout.sink.resolve())),
        *("--checkpoints", layout.location),
        *("--events", str(layout.events.resolve())),
        f"--java-options={cluster.executor_java_options()}",
        *("--driver-host", cluster.zookeeper.host),
        f"--python-path={environment.get('PYTHONPATH', '')}",
        "--adopts",
        *([f"--metrics-port={config.metrics_port + 1}"] if config.metrics_port else []),
    ]
    submit = ["--driver-memory", f"{DRIVER_HEAP_MB}m", "--driver-java-options", cluster.driver_java_options()]
    spark = {**cluster.spark_env(), "PYSPARK_SUBMIT_ARGS": cluster.submit_arguments(*submit)}
    session_s = cluster.config.session_timeout_ms / 1000  # of the agents, by which absence is judged
    coordinator = [
        sys.executable,
        "-m",
        "reprise.controller.coordinator",
        *common,
        f"--session-timeout={session_s:g}",
    ]
    own = environment | spark | cluster.zk_environment(root)
    return {
        "coordinator": Service(
            "coordinator", coordinator, environment | cluster.zk_environment(), layout.log("coordinator")
        ),
        "driver": Service("driver", driver, own, layout.log("driver")),
    }


def _python_path(config: RunConfig, scratch: Path) -> dict[str, str]:
    """Where processes of a run look for modules.  A colon ends a name in PYTHONPATH: a folder that has one gets a link in
    `scratch`."""
    own = config.python_path
    if os.pathsep in own:
        folder = Path(own).resolve()
        link = scratch / f"classes-{hashlib.sha256(bytes(folder)).hexdigest()[:12]}"
        if not link.is_symlink():
            link.symlink_to(folder)
        own = str(link)
    parts = [part for part in (own, os.environ.get("PYTHONPATH", "")) if part]
    return {"PYTHONPATH": os.pathsep.join(parts)} if parts else {}
