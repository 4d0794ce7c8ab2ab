"""Every alert fires for what it is about, in a run on a real cluster that a real Prometheus scrapes.

One run goes from one trouble to the next; the rules are those that are shipped with shorter thresholds.  Beside that every
query of every dashboard must find something in what this run has left: a panel that is empty after all of this is wrong.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.controller.analysis.from_logs import incidents_in
from reprise.controller.local.cluster import ClusterConfig
from reprise.controller.observability.alerts import ALERTS
from reprise.controller.observability.dashboards import DASHBOARDS
from reprise.controller.observability.metrics.catalogue import METRICS
from reprise.controller.status.query_state import RunState, Status
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.session import ZooKeeperSession
from tests.monitoring.watched import Watched
from tests.support.told_cluster import PATIENT_S, ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]
NO_CAPACITY = {
    "RepriseCorrelatedFailure", "RepriseHighPriorityQueryDown", "RepriseCapacityNotArriving", "ReprisePlanInfeasible",
    "RepriseBufferNearLimit", "RepriseCheckpointTooOld", "RepriseQueryFitsOnNoNode",
    "RepriseFallingBehind",
}  # fmt: skip
FROZEN_DRIVER = {"RepriseRecoveryStalled", "RepriseDriverSilent"}
ZK = "RepriseZooKeeperSuspended"
HANGS_S = 300.0
"""What has not come by then will not come; how soon an alert fires is a matter of the machine, too."""
COORDINATOR, DRIVER = "reprise.controller.coordinator", "reprise.controller.driver"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    patient_ms = round(1000 * PATIENT_S)
    config = ClusterConfig(nodes=4, cpu_milli=2000, session_timeout_ms=patient_ms, start_timeout_s=300.0)
    with ToldCluster(config) as cluster, Watched(cluster, tmp_path) as run:
        yield run


def test_alerts_fire_for_what_they_are_about(watched: Watched) -> None:
    """Also: nothing fires before anything is wrong, and what fired falls silent when it is over."""
    prometheus, cluster = watched.prometheus, watched.cluster
    watched.wait_for(steady, "a checkpoint with every query available", HANGS_S)
    prometheus.wait_for(lambda: not prometheus.firing(), "silence", HANGS_S, lambda: str(prometheus.firing()))

    cluster.kill(hosts(watched, "hot"))
    prometheus.wait_firing(NO_CAPACITY, HANGS_S)

    watched.signal(DRIVER, signal.SIGSTOP)  # capacity is there now, but nobody can use it
    cluster.wait_for([cluster.add_node(), cluster.add_node()])
    prometheus.wait_firing(FROZEN_DRIVER, HANGS_S)
    watched.signal(DRIVER, signal.SIGCONT)
    watched.wait_for(steady, "all queries available again", HANGS_S)
    prometheus.wait_for(lambda: not prometheus.firing(), "silence", HANGS_S, lambda: str(prometheus.firing()))
    every_metric_was_served(watched)
    no_panel_is_empty(watched)

    with connected(cluster.zk_hosts, 10.0, cluster.zk_environment()) as client:
        pause(watched, client, b"true")
        prometheus.wait_firing({"ReprisePausedTooLong"}, HANGS_S)
        pause(watched, client, b"false")
    watched.signal(COORDINATOR, signal.SIGSTOP)
    prometheus.wait_firing({"RepriseControllerAbsent"}, HANGS_S)
    watched.signal(COORDINATOR, signal.SIGCONT)

    cluster.zookeeper.freeze()
    prometheus.wait_firing({ZK}, HANGS_S)
    cluster.zookeeper.thaw()
    prometheus.wait_for(lambda: ZK not in prometheus.firing(), f"{ZK} to fall silent", HANGS_S)

    everything = {
        s["metric"]["alertname"] for s in prometheus.query_range('ALERTS{alertstate="firing"}', 3600)
    }
    assert everything == {alert.name for alert in ALERTS} - SEEN_ELSEWHERE
    the_log_alone_tells_the_incident(watched)


def steady(state: RunState) -> bool:
    seen = state.observation
    checkpoint = seen.progress is not None and seen.progress.checkpoint > 0
    return checkpoint and seen.incident is None and state.count(Status.AVAILABLE) == len(state.queries)


def hosts(watched: Watched, operator: str) -> list[str]:
    """Nodes that host partitions of an operator."""
    assert watched.state is not None
    assert watched.state.observation.desired is not None
    assignment = watched.state.observation.desired.assignment
    return sorted({n.rpartition("#")[0] for p, n in assignment.items() if p.startswith(f"{operator}.")})


def pause(watched: Watched, client: ZooKeeperSession, value: bytes) -> None:
    root = f"{(watched.config.resource.namespace)}/{watched.config.resource.name}"
    path = f"/reprise/{root}/commands/paused"
    client.ensure_path(path)
    client.set(path, value)


def every_metric_was_served(watched: Watched) -> None:
    missing = [m.name for m in METRICS for s in m.series if not watched.prometheus.query(f"count({s})")]
    assert not missing


def the_log_alone_tells_the_incident(watched: Watched) -> None:
    """The coordinator's log against incident.json, which comes from the records; of the first incident: a later one may go
    on after the run's last look."""
    first = watched.end().incident["incidents"][0]
    with (watched.out / "logs" / "coordinator.log").open() as log:
        told = incidents_in(log)[first["id"]]
    timeline = watched.end().incident["timeline"]
    span = range(int(first["detected"] * 1000) - 1, int(first["closed"] * 1000) + 2)
    of_it = [line for line in timeline if int(line["elapsed"] * 1000) in span]
    actions = {str(action["action"]) for action in watched.end().record["actions"]}
    assert told == [
        (line["time"], line["what"], line["detail"]) for line in of_it if line["what"] not in actions
    ]


SEEN_ELSEWHERE = {
    "RepriseOutputLacksRows", "RepriseStandbyMissing", "RepriseUpstreamBackupMissing", "RepriseRecoveryObjectiveMissed",
    "ReprisePartitionSetAside", "RepriseSpecRefused", "RepriseJobsFail", "RepriseConnectorWaits",
    "RepriseAvailabilityBurnsFast", "RepriseAvailabilityBurnsSlowly", "RepriseLateRowsDropped",
}  # fmt: skip
"""No operator of this topology has windows, may skip batches, has standbys, an upstream backup or an objective, or raises;
a run whose topology is refused never begins, and budgets of hours are not used up in minutes:
`test_rules_with_promtool.py` alone sees them fire."""
OF_WINDOWS_AND_JOINS = {"Late rows dropped"}
"""Panels of counters that no operator of this topology has; `every_metric_was_served` looks at the metric itself."""


def no_panel_is_empty(watched: Watched) -> None:
    """Over the run so far, as a person would look at it afterwards: every query has a number in it."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            if panel.title in OF_WINDOWS_AND_JOINS:
                continue
            for query in panel.queries:
                expr = query.expr.replace("$topology", ".+").replace("$__rate_interval", "15s")
                series = watched.prometheus.query_range(expr, 300)
                numbers = [float(value) for one in series for _, value in one["values"]]
                assert any(map(math.isfinite, numbers)), f"{dashboard.title} / {panel.title}: {expr}"
