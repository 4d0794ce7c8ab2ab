"""Every alert through promtool: when it fires, and what looks like it and must not make it fire.

The rules are those that are shipped, with their real thresholds; series are what the controller and the driver serve.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.controller.observability.alerts import ALERTS, defaults
from tests.monitoring import tools

pytestmark = [pytest.mark.slow, pytest.mark.wide]  # Prometheus is fetched once
RULES = Path(__file__).parents[2] / "monitoring" / "prometheus-rules.yaml"
T = 'topology="a/b"'
LONG = "x400"
"""Samples, a quarter of a minute apart: an hour and more."""


@dataclass(frozen=True, slots=True)
class Case:
    """`quiet` and `fires`: minutes after the beginning; `labels`: of the alert beside its severity."""

    alert: str
    series: dict[str, str]
    quiet: tuple[str, ...] = ()
    fires: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=lambda: {"topology": "a/b"})


def steady(**values: float) -> dict[str, str]:
    """Series of the topology that never change."""
    return {f"reprise_{name}{{{T}}}": f"{value}+0{LONG}" for name, value in values.items()}


def state(metric: str, value: str, **labels: str) -> dict[str, str]:
    more = "".join(f', {name}="{text}"' for name, text in labels.items())
    return {f"reprise_{metric}{{{T}{more}}}": value}


ON, OFF = f"1+0{LONG}", f"0+0{LONG}"
STALLED = (
    steady(waiting_queries_that_fit=2, recovery_progress_batches=7, paused=0)
    | {f"reprise_incident_age_seconds{{{T}}}": f"0+15{LONG}"}
    | state("partitions", OFF, state="restoring")
)
NO_ROOM = (
    steady(waiting_queries_that_fit=0)
    | state("queries", f"2+0{LONG}", status="waiting", priority_class="high")
    | state("queries", f"3+0{LONG}", status="available", priority_class="low")
    | state("nodes", f"2+0{LONG}", state="missing")
)
SCATTERED = steady(waiting_queries_that_fit=0, waiting_queries_without_a_node=1)
CHECKPOINT = {f"reprise_checkpoint_age_seconds{{{T}}}": f"0+15{LONG}"} | steady(
    checkpoint_interval_seconds=10, paused=0
)
BEHIND = steady(stalled_queries=0, incident_age_seconds=0, paused=0)


def lag(batches: str, seconds: str) -> dict[str, str]:
    return state("lag_batches", batches, priority_class="low") | state(
        "lag_seconds", seconds, priority_class="low"
    )


OPERATOR = {"topology": "a/b", "operator": "sums"}


def late(rows: str) -> dict[str, str]:
    return state("operator_counters", rows, operator="sums", counter="late_rows")


def each_minute(step: int) -> str:
    """Grows by `step` once a minute."""
    return " ".join(f"{step * k}x3" for k in range(60))


GROWING = lag(f"2+2{LONG}", f"1+1{LONG}")
"""Two batches a second, of which a few in a hundred are too many."""
CASES = (
    Case("RepriseFallingBehind", BEHIND | steady(stalled_queries=1), ("1m",), ("3m",)),
    Case("RepriseFallingBehind", BEHIND | steady(stalled_queries=1, incident_age_seconds=60), (), ("3m",)),
    Case("RepriseFallingBehind", BEHIND | GROWING, ("1m", "14m"), ("20m", "60m")),
    # it was too slow, and is just fast enough now: nobody gets back what is missing
    Case("RepriseFallingBehind", BEHIND | lag(f"256+0{LONG}", f"128+0{LONG}"), ("1m",), ("5m", "60m")),
    # ten batches a second: not half a minute
    Case("RepriseFallingBehind", BEHIND | lag(f"256+0{LONG}", f"26+0{LONG}"), ("5m", "60m")),
    # a batch a minute, and none is shown
    Case("RepriseFallingBehind", BEHIND | lag(each_minute(1), each_minute(60)), ("12m",), ("15m", "50m")),
    # a batch every ten minutes, and it takes five
    Case("RepriseFallingBehind", BEHIND | lag(f"1+0{LONG}", f"600+0{LONG}"), ("5m", "60m")),
    # after a stop of some hours, at a batch a second: behind until it has caught up
    Case("RepriseFallingBehind", BEHIND | lag("9000-90x100 0x300", "9000-90x100 0x300"), ("26m",), ("5m", "24m")),
    Case("RepriseFallingBehind", BEHIND | GROWING | steady(incident_age_seconds=60), ("60m",)),
    Case("RepriseFallingBehind", BEHIND | GROWING | steady(stalled_queries=1, paused=1), ("60m",)),
    Case(  # it swings, as it always does
        "RepriseFallingBehind",
        BEHIND | lag("2 7 3 7 2 6 2 7 4 2 7 3 7 2 7 2 7 3 6 2", "61 70 62 70 61 65 61 70 64 61 70 62 70 61 70 61"),
        ("3m", "5m"),
    ),
    Case("RepriseCorrelatedFailure", state("incident_open", ON, kind="correlated"), ("0s",), ("15s", "60m")),
    Case("RepriseCorrelatedFailure", state("incident_open", ON, kind="blocking"), ("60m",)),
    Case("RepriseRecoveryStalled", STALLED, ("30s",), ("5m",)),
    Case(  # it moves, though slowly
        "RepriseRecoveryStalled",
        STALLED | {f"reprise_recovery_progress_batches{{{T}}}": "0x9 1x9 2x9 3x9 4x9 5x9 6x9"},
        ("5m", "15m"),
    ),
    Case("RepriseRecoveryStalled", STALLED | steady(waiting_queries_that_fit=0), ("30m",)),
    Case("RepriseRecoveryStalled", STALLED | steady(incident_age_seconds=0), ("30m",)),
    Case("RepriseRecoveryStalled", STALLED | steady(paused=1), ("30m",)),
    Case(  # everything is placed, and hangs there
        "RepriseRecoveryStalled",
        STALLED | steady(waiting_queries_that_fit=0) | state("partitions", ON, state="restoring"),
        (),
        ("10m",),
    ),
    Case(  # what is placed does not catch up
        "RepriseRecoveryStalled",
        STALLED | steady(waiting_queries_that_fit=0) | state("partitions", ON, state="catching_up"),
        (),
        ("10m",),
    ),
    Case(  # nor can it: it waits behind full buffers for those without a node
        "RepriseRecoveryStalled",
        STALLED
        | steady(waiting_queries_that_fit=0, buffer_fill_ratio=0.99)
        | state("partitions", ON, state="catching_up"),
        ("10m",),
    ),
    Case("RepriseCapacityNotArriving", NO_ROOM, ("4m",), ("6m",)),
    Case("RepriseCapacityNotArriving", NO_ROOM | state("nodes", OFF, state="missing"), ("30m",)),
    Case("RepriseCapacityNotArriving", NO_ROOM | steady(waiting_queries_that_fit=1), ("30m",)),
    Case("RepriseOutputLacksRows", steady(marked_batches=7), (), ("1m",)),
    Case("RepriseOutputLacksRows", steady(marked_batches=0), ("30m",)),
    Case("RepriseLateRowsDropped", late(f"0x40 1+1{LONG}"), ("10m", "18m"), ("25m", "60m"), OPERATOR),
    Case("RepriseLateRowsDropped", late(f"0x40 100+0{LONG}"), ("14m", "60m")),
    # a node is lost, and what it had counted comes back
    Case("RepriseLateRowsDropped", late(f"100x40 50x20 100+0{LONG}"), ("14m", "20m", "60m")),
    Case("RepriseStandbyMissing", steady(standbys_missing=2), ("9m",), ("11m",)),
    Case("RepriseStandbyMissing", steady(standbys_missing=0), ("30m",)),
    Case("RepriseUpstreamBackupMissing", steady(upstream_backups_missing=2), ("9m",), ("11m",)),
    Case("RepriseUpstreamBackupMissing", steady(upstream_backups_missing=0), ("30m",)),
    Case("RepriseRecoveryObjectiveMissed", steady(recovery_objectives_missed=1), ("9m",), ("11m",)),
    Case("RepriseRecoveryObjectiveMissed", steady(recovery_objectives_missed=0), ("30m",)),
    Case("ReprisePartitionSetAside", state("partitions", f"1+0{LONG}", state="poisoned"), ("15s",), ("1m",)),
    Case("ReprisePartitionSetAside", state("partitions", OFF, state="poisoned"), ("30m",)),
    Case("ReprisePartitionSetAside", state("partitions", f"3+0{LONG}", state="waiting"), ("30m",)),
    Case("RepriseJobsFail", steady(jobs_failing=1), ("30s",), ("2m",)),
    Case("RepriseJobsFail", state("jobs_failing", "1x2 0x400"), ("1m", "30m")),
    Case("RepriseJobsFail", steady(jobs_failing=1, paused=1), ("2m", "30m")),
    Case("RepriseConnectorWaits", state("connector_waits", f"2+0{LONG}", connector="source"), ("1m",), ("3m", "30m"),
         {"topology": "a/b", "connector": "source"}),
    Case("RepriseConnectorWaits", state("connector_waits", "1x6 0x400", connector="sink"), ("1m", "3m", "30m")),
    Case("RepriseAvailabilityBurnsFast", steady(availability_ratio=0, paused=0), ("8m",), ("12m", "60m")),
    Case("RepriseAvailabilityBurnsFast", steady(availability_ratio=0, paused=1), ("60m",)),
    # a recovery of five minutes pages nobody; one of twenty does, and no longer than it lasts
    Case("RepriseAvailabilityBurnsFast", state("availability_ratio", "0x20 1x380"), ("5m", "12m", "60m")),
    Case("RepriseAvailabilityBurnsFast", state("availability_ratio", "0x80 1x320"), ("30m", "60m"), ("15m",)),
    # its first nodes come after half an hour, and it takes two minutes then
    Case("RepriseAvailabilityBurnsFast",
         state("availability_ratio", "0x128 1x272") | state("horizon_batches", "0x120 9x280")
         | steady(checkpoint_position_batches=0), ("20m", "31m", "60m")),
    # a new driver that does not begin again is an outage
    Case("RepriseAvailabilityBurnsFast",
         steady(availability_ratio=0, horizon_batches=0, checkpoint_position_batches=40), ("8m",), ("12m", "60m")),
    # what is down once it has begun is counted from there
    Case("RepriseAvailabilityBurnsFast",
         steady(availability_ratio=0, checkpoint_position_batches=0) | state("horizon_batches", "0x120 9x280"),
         ("31m", "37m"), ("42m", "60m")),
    # what is down is worth a twentieth
    Case("RepriseAvailabilityBurnsFast", steady(availability_ratio=0.95), ("60m", "99m")),
    # the operator is replaced in the middle of a short recovery
    Case("RepriseAvailabilityBurnsFast",
         {f'reprise_availability_ratio{{{T}, instance="i"}}': "1x160 0x8 _x232",
          f'reprise_availability_ratio{{{T}, instance="j"}}': "_x168 0x16 1x200"}, ("44m", "47m", "90m")),
    # it was paused for half an hour, in which it showed nothing, and goes on
    Case("RepriseAvailabilityBurnsFast",
         state("availability_ratio", "0x130 1x270") | state("paused", "1x120 0x280"), ("20m", "31m", "33m", "60m")),
    # what was down already when it was paused for a moment stays counted
    Case("RepriseAvailabilityBurnsFast",
         steady(availability_ratio=0) | state("paused", "0x60 1x8 0x332"), ("16m",), ("12m", "30m")),
    Case("RepriseAvailabilityBurnsSlowly", steady(availability_ratio=0.5), ("60m",), ("95m",)),
    Case("RepriseAvailabilityBurnsSlowly", steady(availability_ratio=0.99), ("99m",)),
    Case("RepriseSpecRefused", steady(spec_refused=1), ("1m",), ("3m",)),
    Case("RepriseSpecRefused", steady(spec_refused=0), ("30m",)),
    Case("RepriseQueryFitsOnNoNode", SCATTERED, ("4m",), ("6m",)),
    Case("RepriseQueryFitsOnNoNode", SCATTERED | steady(waiting_queries_that_fit=1), ("30m",)),
    Case("RepriseQueryFitsOnNoNode", SCATTERED | steady(waiting_queries_without_a_node=0), ("30m",)),
    Case(
        "RepriseHighPriorityQueryDown",
        state("queries", OFF, status="waiting", priority_class="high")
        | state("queries", ON, status="recovering", priority_class="high"),
        ("30s",),
        ("2m",),
    ),
    Case("RepriseHighPriorityQueryDown", state("queries", ON, status="waiting", priority_class="low"), ("30m",)),
    Case("RepriseHighPriorityQueryDown", state("queries", ON, status="available", priority_class="high"), ("30m",)),
    Case("RepriseCheckpointTooOld", CHECKPOINT, ("3m",), ("5m",)),
    Case("RepriseCheckpointTooOld", CHECKPOINT | steady(checkpoint_interval_seconds=600), ("50m",), ("60m",)),
    Case("RepriseCheckpointTooOld", CHECKPOINT | steady(paused=1), ("30m",)),
    Case("RepriseBufferNearLimit", steady(buffer_fill_ratio=0.81), ("15s",), ("1m",)),
    Case("RepriseBufferNearLimit", steady(buffer_fill_ratio=0.79), ("30m",)),
    Case("ReprisePlanInfeasible", steady(plan_infeasible=1), ("1m",), ("3m",)),
    Case("ReprisePlanInfeasible", state("plan_infeasible", "1x4 0x400"), ("3m",)),
    Case(
        "RepriseZooKeeperSuspended",
        {'reprise_zookeeper_session{component="driver", instance="i", state="connected"}': "1x4 0x400"},
        ("1m",),
        ("2m",),
        {"component": "driver", "instance": "i", "state": "connected"},
    ),
    Case("RepriseControllerAbsent", {}, ("30s",), ("2m",), {}),
    Case(
        "RepriseControllerAbsent",
        {'reprise_leader{component="operator", instance="i"}': OFF, 'reprise_leader{component="operator", instance="j"}': ON}
        | steady(coordinator_present=1),
        ("30m",),
    ),
    Case(
        "RepriseControllerAbsent",
        {'reprise_leader{component="operator"}': ON} | steady(coordinator_present=0),
        ("30s",),
        ("2m",),
    ),
    Case("RepriseDriverSilent", {f"reprise_driver_heartbeat_age_seconds{{{T}}}": f"0+15{LONG}"}, ("45s",), ("2m",)),
    Case("RepriseDriverSilent", steady(driver_heartbeat_age_seconds=20), ("30m",)),
    Case("ReprisePausedTooLong", steady(paused=1), ("50m",), ("61m",)),
)  # fmt: skip


def moment(case: Case, at: str, fires: bool) -> dict[str, Any]:
    severity = {a.name: a.severity.value for a in ALERTS}[case.alert]
    expected = [{"exp_labels": {**case.labels, "severity": severity}}] if fires else []
    return {"eval_time": at, "alertname": case.alert, "exp_alerts": expected}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(tools.ensure() / "promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.parametrize("case", CASES, ids=[f"{c.alert}-{i}" for i, c in enumerate(CASES)])
def test_an_alert_fires_when_it_should_and_only_then(case: Case, tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule.pop("annotations")  # promtool compares them word by word
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    moments = [moment(case, at, False) for at in case.quiet] + [moment(case, at, True) for at in case.fires]
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "15s",
        "tests": [{"interval": "15s", "input_series": series, "alert_rule_test": moments}],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", tmp_path / "tests.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_to_fire_and_to_stay_quiet() -> None:
    assert (
        {c.alert for c in CASES if c.fires} == {c.alert for c in CASES if c.quiet} == {a.name for a in ALERTS}
    )
    assert defaults()["pausedFor"] == "1h"  # what the cases above reckon with
