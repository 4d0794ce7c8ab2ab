"""`python -m reprise.controller.coordinator`: the coordinator of one topology; started by the supervisor or as a pod."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from pathlib import Path

from reprise.algorithms import compiled
from reprise.controller import logs
from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.history import Kept
from reprise.controller.coordinator.settings import SettingsFollower
from reprise.controller.coordinator.store import Store
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.node_record import SESSION_S, absence_counts_after_s
from reprise.controller.zookeeper.session import ZooKeeperSession, patiently
from reprise.scheduler.model import Policy
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, from_json

log = logging.getLogger("reprise.coordinator")


def main() -> int:
    """Parse the command line and run until SIGTERM or SIGINT."""
    options = _parser().parse_args()
    logs.setup(options.log_format, quiet=("kazoo",))
    sys.path += [entry for entry in options.python_path.split(":") if entry]
    try:
        resource = from_json(options.topology.read_text(encoding="utf-8"))
    except (OSError, SpecError) as error:
        log.error("event=topology-unreadable file=%s reason=%r", options.topology, str(error))
        return 2
    compiled.load_in_background()  # the first plan after a failover waits for no compiler
    with connected(options.zk, options.session_timeout, start_s=60) as client:
        coordinator = _coordinator(options, resource, client)

        def end(*_: object) -> None:
            coordinator.stop.set()
            coordinator.store.changed.set()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        patiently(coordinator.store.open)
        coordinator.run()
    return 0


def _coordinator(
    options: argparse.Namespace, resource: StreamTopology, client: ZooKeeperSession
) -> Coordinator:
    store = Store(
        client=client,
        root=options.root,
        topology=view_of(resource),
        clock=time.time,
        paused=resource.paused,
        keep=resource.checkpoint.keep,
        grace_s=absence_counts_after_s(options.session_timeout),
    )
    policy = policy_of(resource, options.settle, options.driver_grace)
    coordinator = Coordinator(store, policy, kept=_kept(options))
    coordinator.refresh = SettingsFollower(coordinator, resource).refresh
    return coordinator


def _kept(options: argparse.Namespace) -> Kept:
    return Kept(options.keep_records, options.keep_records_mi * 2**20)


def seconds(text: str) -> float:
    """ValueError, which is a mistake on the command line, for what is no time that can be waited."""
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reprise.controller.coordinator", description=__doc__)
    parser.add_argument("--zk", required=True, help="ZooKeeper hosts")
    parser.add_argument("--root", required=True, help="/reprise/<namespace>/<topology>")
    parser.add_argument("--topology", required=True, type=Path, help="StreamTopology as JSON")
    parser.add_argument("--python-path", default="", help="where user classes are found, separated by colons")
    parser.add_argument(
        "--settle", type=seconds, default=Policy().settle_s, help="seconds to wait for the rest of a burst"
    )
    parser.add_argument(
        "--driver-grace",
        type=seconds,
        default=Policy().driver_grace_s,
        help="longest wait, s, for the nodes of a new driver",
    )
    parser.add_argument(
        "--session-timeout",
        type=float,
        default=SESSION_S,
        help="of ZooKeeper sessions, this one and the agents', s; a successor waits it out",
    )
    parser.add_argument("--keep-records", type=int, default=100, help="closed incidents kept in ZooKeeper")
    parser.add_argument(
        "--keep-records-mi", type=int, default=4, help="MiB that these and their plans may take"
    )
    parser.add_argument("--log-format", choices=logs.FORMATS, help=f"default ${logs.VARIABLE}, else text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
