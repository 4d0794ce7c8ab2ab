"""`python -m reprise.controller.operator`: wait for the Lease, then work until told to stop or the Lease is lost."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import kopf

from reprise.algorithms import compiled
from reprise.controller import logs
from reprise.controller.errors import ConfigError
from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.budget import WriteBudget
from reprise.controller.kubernetes.errors import OperatorError, SettingsError
from reprise.controller.kubernetes.lease import ANSWER_SHARE, Leadership
from reprise.controller.observability.metrics import collect as metrics
from reprise.controller.observability.metrics.endpoint import controller_registry
from reprise.controller.observability.metrics.errors import ServeError
from reprise.controller.operator import interpreter
from reprise.controller.operator.handlers import register
from reprise.controller.operator.health import serve
from reprise.controller.operator.loop.runtime import Runtime
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.web import Board, Token, WebError, WebServer
from reprise.controller.zookeeper.access import keys_of
from reprise.controller.zookeeper.users import Keys

log = logging.getLogger("reprise.operator")


def main() -> int:
    """Exit code 0 after SIGTERM, 1 when the Lease was lost, 2 for settings that cannot work."""
    interpreter.set_up()
    options = _parser().parse_args()
    logs.setup(options.log_format, quiet=("kazoo", "kopf", "urllib3"))
    try:
        settings = _settings(options)
    except OperatorError as error:
        log.error("event=bad-setting reason=%r", str(error))
        return 2
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    api = Api(WriteBudget(settings.writes_per_s))
    leadership = Leadership(
        Api(WriteBudget(5, patient=True), answer_s=settings.lease_s * ANSWER_SHARE),
        settings.namespace,
        settings.lease,
        settings.identity,
        settings.lease_s,
        web=_web_url(settings),
    )
    board = Board()
    running: list[Runtime] = []
    if settings.health_port:
        serve(os.environ.get("POD_IP", ""), settings.health_port, lambda: running[0] if running else None)
    if settings.metrics_port:
        _serve_metrics(settings.metrics_port, api, running)
    if settings.web_port:
        _serve_web(settings, board, leadership)
    compiled.load_in_background()  # while it waits for the Lease, so that the first plan waits for no compiler
    if not leadership.acquire(stop):
        return 0
    runtime = Runtime.start(settings, api, board)
    running.append(runtime)
    holding = threading.Thread(target=leadership.hold, args=(stop, _fenced), name="lease")
    holding.start()
    try:
        _work(runtime, stop)
    finally:
        runtime.stop()
        stop.set()
        holding.join()
    return 0


def _web_url(settings: OperatorSettings) -> str:
    """Where the other operators find the page of this one; empty for none."""
    host = os.environ.get("POD_IP", "")
    return (
        f"http://{f'[{host}]' if ':' in host else host}:{settings.web_port}"
        if settings.web_port and host
        else ""
    )


def _serve_web(settings: OperatorSettings, board: Board, leadership: Leadership) -> None:
    """Also by an operator that waits for the Lease: it passes requests on.  Recovery does not depend on a page."""
    names = (os.environ.get("POD_IP", ""), *settings.web_names)
    try:
        token = Token(Path(settings.web_token)) if settings.web_token else None
        server = WebServer(
            board, settings.web_host, settings.web_port, lambda: leadership.web, names=names, token=token
        )
        server.start()
    except WebError as error:
        log.error("event=no-web-page reason=%r", str(error))


def _work(runtime: Runtime, stop: threading.Event) -> None:
    registry = kopf.OperatorRegistry()
    register(registry, runtime)
    watch = runtime.settings.watch

    async def operate() -> None:
        try:
            await kopf.operator(
                registry=registry, standalone=True, clusterwide=not watch, namespaces=watch, stop_flag=stop
            )
        finally:  # kopf takes SIGTERM for itself, and one of its threads waits for the flag
            stop.set()

    asyncio.run(operate())


def _serve_metrics(port: int, api: Api, running: list[Runtime]) -> None:
    """Also of an operator that waits for the Lease: it says that it does not lead, and nothing of topologies.  One that
    cannot be scraped works all the same."""
    registry = controller_registry(
        "operator",
        looks=lambda: running[0].looks() if running else [],
        session=lambda: running[0].session if running else "lost",
        refused=lambda: dict(api.refused),
        leading=lambda: bool(running),
        specs=lambda: running[0].specs() if running else {},
    )
    try:
        metrics.serve(os.environ.get("POD_IP", ""), port, registry)
    except ServeError as error:
        log.error("event=metrics-not-served reason=%r", str(error))


def _fenced() -> None:
    """Somebody else may work by now: end at once, with nothing half-done that another could not go on with."""
    os._exit(1)


def _settings(options: argparse.Namespace) -> OperatorSettings:
    return OperatorSettings(
        namespace=options.namespace, identity=options.identity, zk=options.zk, image=options.image,
        zk_tls_secret=options.zk_tls_secret, zk_own=options.zk_own,
        own_secrets=_words(options.own_secrets), zk_keys=_zk_keys(),
        driver_account=options.driver_account, own_account=options.own_account,
        own_namespace=options.own_namespace, accounts=_words(options.accounts), secrets=_words(options.secrets),
        config_maps=_words(options.config_maps),
        network_policies=options.network_policies,
        open_metrics=options.open_metrics,
        denied_egress=_words(options.denied_egress), api_ports=options.api_ports,
        watch=_words(options.watch),
        nodes=not options.no_nodes, capacity=options.capacity, writes_per_s=options.writes_per_s,
        lease=options.lease, lease_s=options.lease_s,
        session_s=options.session_timeout, settle_s=options.settle, driver_grace_s=options.driver_grace,
        driver_silent_s=options.driver_silent, machine_lost_s=options.machine_lost,
        notice_s=options.notice,
        leaving_taints=_words(options.leaving_taints),
        leaving_conditions=_words(options.leaving_conditions),
        switches=options.switches, health_port=options.health_port,
        metrics_port=options.metrics_port, log_format=options.log_format, keep_incidents=options.keep_incidents,
        keep_records=options.keep_records, keep_records_mi=options.keep_records_mi,
        web_host=options.web_host, web_port=options.web_port,
        web_names=_words(options.web_names), web_token=options.web_token,
    )  # fmt: skip


def _zk_keys() -> Keys | None:
    try:
        return keys_of()
    except ConfigError as error:
        raise SettingsError(str(error)) from error


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


_Add = Callable[..., object]
"""Adds one option to its group."""


def _parser() -> argparse.ArgumentParser:
    """The options, in groups; the defaults are those of `OperatorSettings`."""
    base = OperatorSettings(namespace="-", identity="-", zk="-", image="-")
    parser = argparse.ArgumentParser(prog="python -m reprise.controller.operator", description=__doc__)
    for title, add_options in _GROUPS.items():
        add_options(parser.add_argument_group(title).add_argument, base)
    return parser


def _operator_options(add: _Add, base: OperatorSettings) -> None:
    env = os.environ
    add("--namespace", default=env.get("POD_NAMESPACE", ""), help="its own; default $POD_NAMESPACE")
    add("--identity", default=env.get("POD_NAME", ""), help="holder of the lease; default $POD_NAME")
    add("--lease", default=base.lease, help="name of the Lease")
    add("--lease-s", type=float, default=base.lease_s, help="seconds after which a silent leader is replaced")
    add("--own-account", default=base.own_account, help="its service account, refused to topologies")
    add("--own-secrets", default="", help="Secrets of the control plane, which no topology may name")
    add("--health-port", type=int, default=base.health_port, help="of the probes; 0 for none")
    add(
        "--log-format", choices=logs.FORMATS, default=env.get(logs.VARIABLE, base.log_format),
        help="here and in pods of topologies",
    )  # fmt: skip


def _zookeeper_options(add: _Add, base: OperatorSettings) -> None:
    add("--zk", required=True, help="ZooKeeper hosts, as pods reach them")
    add("--zk-tls-secret", default="", help="Secret for TLS to ZooKeeper, for pods of topologies")
    add("--zk-own", action="store_true", help="nobody else uses that ZooKeeper: with users, close all of it")
    add("--session-timeout", type=float, default=base.session_s, help="of ZooKeeper sessions, s")
    add("--keep-records", type=int, default=base.keep_records, help="closed incidents kept in ZooKeeper")
    add(
        "--keep-records-mi", type=int, default=base.keep_records_mi,
        help="MiB that these may take, a topology",
    )  # fmt: skip


def _cluster_options(add: _Add, base: OperatorSettings) -> None:
    add("--watch", default="", help="namespaces, separated by commas; default: all")
    add("--own-namespace", action="store_true", help="look after topologies in its own namespace too")
    add("--no-nodes", action="store_true", help="do not read Node objects (no ClusterRole)")
    add("--capacity", action="store_true", help="read all pods, to know what room there is for more")
    add("--writes-per-s", type=int, default=base.writes_per_s, help="most writes a second to the API server")
    add("--switches", default="", help="ConfigMap with the keys paused and recommend, for all topologies")
    add("--keep-incidents", type=int, default=base.keep_incidents, help="closed Incidents kept as objects")


def _pod_options(add: _Add, base: OperatorSettings) -> None:
    add("--image", required=True, help="of drivers and executors whose topology names none")
    add("--driver-account", default=base.driver_account, help="service account of drivers")
    add(
        "--accounts", default=",".join(base.accounts),
        help="further service accounts that topologies may name, separated by commas; * for any part",
    )  # fmt: skip
    add(
        "--secrets", default=",".join(base.secrets),
        help="Secrets that topologies may name, separated by commas; * for any part",
    )  # fmt: skip
    add(
        "--config-maps", default=",".join(base.config_maps),
        help="ConfigMaps that topologies may name as their code, separated by commas; * for any part",
    )  # fmt: skip
    add("--network-policies", action="store_true", help="make a NetworkPolicy for each topology")
    add("--open-metrics", action="store_true", help="let everybody scrape drivers (with --network-policies)")
    add(
        "--denied-egress", default=",".join(base.denied_egress),
        help="blocks of addresses that pods of topologies may not call, separated by commas (with --network-policies)",
    )  # fmt: skip
    add(
        "--api-ports", type=lambda text: tuple(int(port) for port in _words(text)), default=base.api_ports,
        help="ports of the API server, separated by commas (with --network-policies)",
    )  # fmt: skip


def _recovery_options(add: _Add, base: OperatorSettings) -> None:
    add("--settle", type=float, default=base.settle_s, help="seconds to wait for the rest of a burst")
    add(
        "--driver-grace", type=float, default=base.driver_grace_s,
        help="longest wait for a new driver's nodes, s",
    )  # fmt: skip
    add(
        "--driver-silent", type=float, default=base.driver_silent_s,
        help="seconds without a report after which a driver is ended and started anew",
    )  # fmt: skip
    add(
        "--notice", type=int, default=base.notice_s,
        help="seconds that an executor pod that is told to end works on, so that what it has can move",
    )  # fmt: skip
    add(
        "--leaving-taints", default=",".join(base.leaving_taints), metavar="KEY[=SECONDS],...",
        help="taints of Kubernetes nodes that will be taken away, whose pods are emptied meanwhile, and how soon",
    )  # fmt: skip
    add(
        "--leaving-conditions", default=",".join(base.leaving_conditions), metavar="TYPE[=SECONDS],...",
        help="conditions that say the same of a Kubernetes node while they are True, and how soon",
    )  # fmt: skip
    add(
        "--machine-lost", type=int, default=base.machine_lost_s,
        help="seconds that pods stay on a Kubernetes node that is not ready or unreachable",
    )  # fmt: skip


def _page_options(add: _Add, base: OperatorSettings) -> None:
    add(
        "--metrics-port", type=int, default=base.metrics_port,
        help="of metrics, here and of drivers; 0 for none",
    )  # fmt: skip
    add("--web-host", default=base.web_host, help="address of the web page; default: all")
    add("--web-port", type=int, default=base.web_port, help="of the read-only web page; 0 for none")
    add("--web-names", default="", help="host names by which the page is asked for, separated by commas")
    add("--web-token", default="", help="file with the token that the page asks for; default: it asks nobody")


_GROUPS: dict[str, Callable[[_Add, OperatorSettings], None]] = {
    "the operator": _operator_options,
    "ZooKeeper": _zookeeper_options,
    "the Kubernetes cluster": _cluster_options,
    "pods of topologies": _pod_options,
    "recovery": _recovery_options,
    "metrics and web page": _page_options,
}


if __name__ == "__main__":
    sys.exit(main())
