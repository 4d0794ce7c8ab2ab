"""`python -m reprise.controller.driver`: the driver process of one topology; started by the supervisor or as a pod."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import NoReturn

from reprise.controller import logs
from reprise.controller.agent import driver_files
from reprise.controller.driver.process import Driver, DriverConfig
from reprise.controller.errors import StartError
from reprise.spark_jobs.errors import CheckpointError, SpecError, StoreError, raise_all
from reprise.spark_jobs.state.graphs import GraphError
from reprise.spark_jobs.state.revision import RevisionError
from reprise.spark_jobs.topology import from_json
from reprise.spark_jobs.topology.locations import out_of_reach

QUIET = ("kazoo", "py4j", "aiobotocore", "botocore", "s3fs", "gcsfs", "google", "adlfs", "azure")
"""Loggers of libraries that tell of each request at level INFO; those of `azure` with its headers."""


def main() -> None:
    """Parse the command line and run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m reprise.controller.driver", description=__doc__)
    parser.add_argument("--zk", required=True, help="ZooKeeper hosts")
    parser.add_argument("--root", required=True, help="/reprise/<namespace>/<topology>")
    parser.add_argument("--topology", required=True, type=Path, help="StreamTopology as JSON")
    parser.add_argument("--master", required=True, help="Spark master URL")
    parser.add_argument("--sink", required=True, help="folder for sink output")
    parser.add_argument("--checkpoints", required=True, help="URL of the checkpoint location")
    parser.add_argument(
        "--events", type=Path, help="file that gets a line for each output batch; without it there is none"
    )
    parser.add_argument("--java-options", default="", help="for executors")
    parser.add_argument("--driver-host", default="127.0.0.1", help="address that executors connect to")
    parser.add_argument("--python-path", default="", help="where user classes are found")
    parser.add_argument(
        "--conf", action="append", default=[], type=_pair, metavar="KEY=VALUE", help="further Spark property"
    )
    parser.add_argument(
        "--heap", help="of the driver's JVM, such as 768m; without it the environment says so"
    )
    parser.add_argument("--image", default="", help="name of the image; another one is other code")
    parser.add_argument("--metrics-host", default="127.0.0.1", help="address at which metrics are served")
    parser.add_argument("--metrics-port", type=int, default=0, help="port at which they are; 0: not served")
    parser.add_argument(
        "--adopts", action="store_true", help="nodes outlive drivers here: recovery.driverGrace is followed"
    )
    parser.add_argument("--log-format", choices=logs.FORMATS, help=f"default ${logs.VARIABLE}, else text")
    options = parser.parse_args()
    logs.setup(options.log_format, quiet=QUIET)
    if options.heap:
        os.environ["PYSPARK_SUBMIT_ARGS"] = _submit_arguments(options.heap)
    try:
        driver_files.check(os.environ, options.topology.parent)
    except StartError as error:
        sys.exit(f"refused: {error}")
    resource = from_json(options.topology.read_text(encoding="utf-8"))
    config = DriverConfig(
        zk=options.zk,
        root=options.root,
        master=options.master,
        sink=options.sink,
        checkpoints=options.checkpoints,
        events=options.events,
        java_options=options.java_options,
        driver_host=options.driver_host,
        python_path=options.python_path,
        conf=dict(options.conf),
        image=options.image,
        metrics_host=options.metrics_host,
        metrics_port=options.metrics_port,
        adopts=options.adopts,
    )
    try:
        raise_all(out_of_reach(resource))  # now, and not on each node for as long as somebody tries
    except SpecError as error:
        _refused(error)
    driver = Driver(resource, config)

    def end(*_: object) -> None:
        driver.stop.set()
        driver.channel.changed.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        driver.run()
    except StoreError:  # it may answer the next driver
        raise
    except (CheckpointError, GraphError, RevisionError, SpecError) as error:
        _refused(error)
    if driver.superseded:  # with 0 a driver says that it has drained, or that its stream has ended
        sys.exit(f"superseded: {driver.superseded}")


def _refused(error: Exception) -> NoReturn:
    """End, with the reason in one line and nothing else."""
    logging.getLogger("reprise.driver").error("event=refused reason=%r", str(error))
    sys.exit(f"refused: {error}")


def _pair(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key, value


def _submit_arguments(heap: str) -> str:
    """Arguments for the JVM that pyspark starts; REPRISE_JAVA_OPTIONS are those of the image."""
    options = os.environ.get("REPRISE_JAVA_OPTIONS", "")
    java = ["--driver-java-options", options] if options else []
    return shlex.join(["--driver-memory", heap, *java, "pyspark-shell"])


if __name__ == "__main__":
    main()
