"""Every alert with its reason: the one source of the PrometheusRule, of the plain rules file and of docs/alerts.md.

An alert asks for a person, so each is about what somebody has lost or will lose, and none about a cause that mends itself.
Thresholds have names (`<stalledWindow>` in an expression), so that a platform team changes them in the chart's values and a
test shortens them while the expressions stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Who is told: the person on call now, or somebody in working hours."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Threshold:
    """`value` is text as PromQL has it; `reason`: why this and not another."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alert:
    """`hold`: name of the threshold for how long the expression must hold."""

    name: str
    severity: Severity
    expr: str
    hold: str
    summary: str
    description: str

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """Those that it uses, in the order of their declaration."""
        return tuple(t for t in THRESHOLDS if t.name == self.hold or f"<{t.name}>" in self.expr)

    @property
    def page(self) -> str:
        """File name of its runbook."""
        return f"{self.name}.md"


def _burns(pace: str, *windows: tuple[str, int]) -> str:
    """What of the budget of unavailability is used up at this pace in a long window and in a short one, which ends the alert
    soon after the trouble.  `windows`: range with step, and how many steps it has.  Of all instances at once, as operators
    take over from each other; a moment without a value counts as available, or a topology that starts would begin with an
    outage, and so does one in which it was paused, or one that is resumed would.  Before its first batch is released nothing
    is lost, however long its images and nodes take to come; a new driver of one that has begun knows of a checkpoint."""
    paused = "unless on (topology) (max by (topology) (reprise_paused) == 1)"
    none = "(max by (topology) ({}) == 0)"
    begun = (
        f"unless on (topology) ({none.format('reprise_horizon_batches')} "
        f"and on (topology) {none.format('reprise_checkpoint_position_batches')})"
    )
    counted = f"1 - max by (topology) (reprise_availability_ratio) {paused} {begun}"
    lost = f"sum_over_time(({counted})[{{}}]) / {{}} > <{{}}> * <burnBudget>"
    terms = " and ".join(f"({lost.format(window, steps, pace)})" for window, steps in windows)
    return f"({terms}) {paused}"


THRESHOLDS: tuple[Threshold, ...] = (
    Threshold(
        "correlatedFor",
        "15s",
        "one scrape: the controller has waited for the rest of the burst already, so this is no flicker, and recovery "
        "has begun; a person should know from the first minute because only people can bring capacity",
    ),
    Threshold(
        "stalledWindow",
        "3m",
        "restoring a partition and replaying to the horizon moves some position every few seconds, an executor pod that "
        "pulls its image takes up to two minutes; three without any movement is neither",
    ),
    Threshold(
        "stalledFor",
        "1m",
        "a controller that has just been replaced looks as if nothing had moved for a moment",
    ),
    Threshold(
        "capacityFor",
        "5m",
        "a cloud brings a machine in one to three minutes and a pod on it in one more; after five it will not come by "
        "itself",
    ),
    Threshold(
        "scatteredFor",
        "5m",
        "only another node ends it; one that is on its way is there within five minutes, as for `capacityFor`",
    ),
    Threshold("gapFor", "0s", "it is known for certain as soon as it is reported"),
    Threshold(
        "standbyFor", "10m", "a standby begins within a minute, once there is room and no incident is open"
    ),
    Threshold(
        "backupFor",
        "10m",
        "after an incident the next checkpoints bring it back; buffers that are full stay so while a reader is slow",
    ),
    Threshold(
        "objectiveFor",
        "10m",
        "slots are stored again little by little, and after an incident it takes some intervals of checkpoints until that "
        "shows; nothing is lost meanwhile",
    ),
    Threshold("lateWindow", "5m", "a source that brings rows once a minute has brought some"),
    Threshold(
        "lateFor",
        "10m",
        "a few stragglers are what `lateness` is about; rows that are dropped all the time come behind a watermark that is "
        "too far ahead",
    ),
    Threshold("asideFor", "30s", "nothing heals it; two scrapes agree"),
    Threshold(
        "jobsFor",
        "1m",
        "a job is tried again at once, and five have failed alike before it is reported; a lost node has gone by then",
    ),
    Threshold(
        "connectorFor",
        "2m",
        "brokers elect another leader and stores answer again within a minute; what waits goes on by itself then",
    ),
    Threshold(
        "burnBudget",
        "0.01",
        "share of the summed priority that may be unavailable over a month: 99 % is what one machine room gives",
    ),
    Threshold(
        "burnFast",
        "14.4",
        "times the budget over an hour, which is two hundredths of a month's: nine minutes with everything down. Shorter "
        "recoveries do not reach it",
    ),
    Threshold("burnSlow", "3", "times the budget over a day, which is a tenth of a month's"),
    Threshold("burnFor", "1m", "the windows of the expressions are long; two evaluations agree"),
    Threshold("refusedFor", "2m", "whoever has just applied it sees the refusal at once and mends it"),
    Threshold(
        "highPriorityFor",
        "1m",
        "a single lost node is recovered from in seconds, and whoever gave a query a priority of 8 or more wants to know "
        "after a minute",
    ),
    Threshold(
        "behindSeconds",
        "60",
        "a driver that starts anew, and what came due meanwhile, take less; sources forget after hours",
    ),
    Threshold(
        "behindBatches",
        "10",
        "a topology runs two to seven batches behind while all is well; with long intervals a single one is more than "
        "`behindSeconds`",
    ),
    Threshold(
        "behindFor",
        "2m",
        "a query counts as stalled after fifteen seconds; a job that failed for another reason than its input succeeds when "
        "it is tried again",
    ),
    Threshold(
        "checkpointIntervals",
        "5",
        "slow storage misses one or two; after five intervals a failure replays five times what it should",
    ),
    Threshold(
        "checkpointGrace",
        "120",
        "seconds on top: with intervals of a few seconds five of them are over before anything is wrong",
    ),
    Threshold("checkpointFor", "1m", "several scrapes agree"),
    Threshold(
        "bufferFill",
        "0.8",
        "of memory and disk together: a fifth is left, which at a steady rate is a quarter of the time since buffering "
        "began; full buffers make partitions wait and a further loss costs a rollback of everything",
    ),
    Threshold("bufferFor", "30s", "two scrapes; buffers fill steadily, they do not flicker"),
    Threshold(
        "infeasibleFor",
        "2m",
        "the next node brings the next plan; two minutes after a plan that could restore nothing none has come",
    ),
    Threshold(
        "zookeeperFor",
        "30s",
        "an ensemble elects a new leader within some seconds; the topologies run on meanwhile, but nothing is recovered",
    ),
    Threshold(
        "controllerFor",
        "1m",
        "the second operator takes the Lease within ten seconds, a pod is started anew within half a minute",
    ),
    Threshold(
        "driverAge",
        "30",
        "seconds; a driver reports at least every 2 s, also while a job hangs; longer only while ZooKeeper is away",
    ),
    Threshold("driverFor", "30s", "a new driver takes some twenty seconds to say its first word"),
    Threshold(
        "pausedFor",
        "1h",
        "longer than maintenance takes; input piles up and no checkpoint is taken, so people forget at a price",
    ),
)

ALERTS: tuple[Alert, ...] = (
    Alert(
        "RepriseCorrelatedFailure",
        Severity.CRITICAL,
        'max by (topology) (reprise_incident_open{kind="correlated"}) == 1',
        "correlatedFor",
        "{{ $labels.topology }} has lost several nodes at once",
        "A correlated failure is open; queries come back one by one as capacity arrives, the most valuable first.",
    ),
    Alert(
        "RepriseRecoveryStalled",
        Severity.CRITICAL,
        "(max by (topology) (reprise_waiting_queries_that_fit > 0 "
        'or reprise_partitions{state="restoring"} > 0 '
        # behind full buffers partitions wait for those that have no node: that is a matter of capacity
        'or (reprise_partitions{state="catching_up"} > 0 unless on (topology) reprise_buffer_fill_ratio > <bufferFill>)) '
        "and on (topology) (max by (topology) (reprise_incident_age_seconds) > 0) "
        "and on (topology) (max by (topology) (changes(reprise_recovery_progress_batches[<stalledWindow>])) == 0)) "
        "unless on (topology) (max by (topology) (reprise_paused) == 1)",
        "stalledFor",
        "The recovery of {{ $labels.topology }} stands still although there is capacity",
        "Queries that would fit the living nodes wait, or partitions are being restored, and no position has moved.",
    ),
    Alert(
        "RepriseCapacityNotArriving",
        Severity.CRITICAL,
        '(sum by (topology) (reprise_queries{status="waiting"}) > 0) '
        "and on (topology) (max by (topology) (reprise_waiting_queries_that_fit) == 0) "
        'and on (topology) (max by (topology) (reprise_nodes{state="missing"}) > 0)',
        "capacityFor",
        "{{ $value }} queries of {{ $labels.topology }} wait for nodes that do not come",
        "No waiting query fits what the living nodes have free, and fewer nodes are alive than the topology asks for.",
    ),
    Alert(
        "RepriseQueryFitsOnNoNode",
        Severity.WARNING,
        "(max by (topology) (reprise_waiting_queries_without_a_node) > 0) "
        "and on (topology) (max by (topology) (reprise_waiting_queries_that_fit) == 0)",
        "scatteredFor",
        "{{ $value }} queries of {{ $labels.topology }} fit the free capacity, but only in pieces",
        "Enough CPU is free in sum, but no node has room for a partition; running ones are not moved, so only a node helps.",
    ),
    Alert(
        "RepriseOutputLacksRows",
        Severity.WARNING,
        "max by (topology) (reprise_marked_batches) > 0",
        "gapFor",
        "Outputs of {{ $labels.topology }} lack rows, in batches that are marked",
        "A partition began anew (`availability: amnesia`, `reprise skip`); the incident says which batches may lack rows.",
    ),
    Alert(
        "RepriseLateRowsDropped",
        Severity.WARNING,
        # the greatest of an hour, as a partition that comes back counts again what it had counted
        'max by (topology, operator) (reprise_operator_counters{counter="late_rows"}) > max by (topology, operator) '
        '(max_over_time(reprise_operator_counters{counter="late_rows"}[1h] offset <lateWindow>))',
        "lateFor",
        "{{ $labels.operator }} of {{ $labels.topology }} drops late rows",
        "Rows come behind the watermark, and results lack them; one row of the far future may have moved it.",
    ),
    Alert(
        "RepriseStandbyMissing",
        Severity.WARNING,
        "max by (topology) (reprise_standbys_missing) > 0",
        "standbyFor",
        "{{ $value }} partitions of {{ $labels.topology }} have no standby",
        "If they are lost now they come back by a plan, and not at once: no node has room, or standbys come to nothing.",
    ),
    Alert(
        "RepriseUpstreamBackupMissing",
        Severity.WARNING,
        "max by (topology) (reprise_upstream_backups_missing) > 0",
        "backupFor",
        "{{ $value }} partitions of {{ $labels.topology }} could not be fed again by their upstreams",
        "If they are lost now they come back from a checkpoint: upstreams dropped what they need, or their code raised.",
    ),
    Alert(
        "RepriseRecoveryObjectiveMissed",
        Severity.WARNING,
        "max by (topology) (reprise_recovery_objectives_missed) > 0",
        "objectiveFor",
        "{{ $value }} queries of {{ $labels.topology }} would come back later than their objective",
        "If a node were lost now they would take longer than `output.recovery.objective`; `reprise explain` says what of.",
    ),
    Alert(
        "RepriseHighPriorityQueryDown",
        Severity.CRITICAL,
        'sum by (topology) (reprise_queries{status!="available", priority_class="high"}) > 0',
        "highPriorityFor",
        "{{ $value }} queries of high priority of {{ $labels.topology }} are down",
        "Queries with a priority of 8 or more wait, are recovering, or run and show nothing.",
    ),
    Alert(
        "RepriseFallingBehind",
        Severity.CRITICAL,
        "(max by (topology) (reprise_stalled_queries) > 0 "
        # in an incident the lag of what is down grows, which other alerts are about
        # how far, and not how fast: a lag that stands is one that no reader gets back
        "or (max by (topology) (reprise_lag_seconds) > <behindSeconds> "
        "and on (topology) max by (topology) (reprise_lag_batches) > <behindBatches> "
        "unless on (topology) (max by (topology) (reprise_incident_age_seconds) > 0))) "
        "unless on (topology) (max by (topology) (reprise_paused) == 1)",
        "behindFor",
        "{{ $labels.topology }} falls behind its input",
        "Queries run and show nothing new, or what they show is of long ago: their outputs are far behind what is due.",
    ),
    Alert(
        "RepriseCheckpointTooOld",
        Severity.WARNING,
        "(max by (topology) (reprise_checkpoint_age_seconds) > on (topology) "
        "<checkpointIntervals> * max by (topology) (reprise_checkpoint_interval_seconds) + <checkpointGrace>) "
        "unless on (topology) (max by (topology) (reprise_paused) == 1)",
        "checkpointFor",
        "The newest checkpoint of {{ $labels.topology }} is {{ $value | humanizeDuration }} old",
        "Each further failure replays everything since then, sources cannot trim, and no incident can be closed.",
    ),
    Alert(
        "RepriseBufferNearLimit",
        Severity.WARNING,
        "max by (topology) (reprise_buffer_fill_ratio) > <bufferFill>",
        "bufferFor",
        "Output buffers of {{ $labels.topology }} are {{ $value | humanizePercentage }} full",
        "A node has nearly used recovery.bufferMemory and recovery.bufferDisk; when they are full its partitions wait.",
    ),
    Alert(
        "ReprisePlanInfeasible",
        Severity.WARNING,
        "max by (topology) (reprise_plan_infeasible) == 1",
        "infeasibleFor",
        "The newest plan of {{ $labels.topology }} could restore nothing",
        "What is free does not hold one waiting query, in sum or node by node; the plan names the reason for each.",
    ),
    Alert(
        "ReprisePartitionSetAside",
        Severity.CRITICAL,
        'sum by (topology) (reprise_partitions{state="poisoned"}) > 0',
        "asideFor",
        "{{ $value }} partitions of {{ $labels.topology }} are set aside, as their code raises",
        "Their queries show nothing more, no checkpoint is complete without them, and only changed code or input helps.",
    ),
    Alert(
        "RepriseJobsFail",
        Severity.CRITICAL,
        "(max by (topology) (reprise_jobs_failing) == 1) unless on (topology) (max by (topology) (reprise_paused) == 1)",
        "jobsFor",
        "Spark jobs of {{ $labels.topology }} fail again and again",
        "No batch of the topology is processed while its jobs fail in the same way; an event says where and why.",
    ),
    Alert(
        "RepriseConnectorWaits",
        Severity.WARNING,
        "max by (topology, connector) (reprise_connector_waits) > 0",
        "connectorFor",
        "{{ $value }} partitions of {{ $labels.topology }} wait for their {{ $labels.connector }}",
        "A source cannot be read, or a sink cannot be written; nothing is lost, and it goes on by itself when that answers.",
    ),
    Alert(
        "RepriseAvailabilityBurnsFast",
        Severity.CRITICAL,
        _burns("burnFast", ("1h:1m", 60), ("5m:15s", 20)),
        "burnFor",
        "{{ $labels.topology }} was unavailable for too much of the last hour, and still is",
        "By priority, more of the last hour was lost than the budget of a month allows, and the last five minutes go on so.",
    ),
    Alert(
        "RepriseAvailabilityBurnsSlowly",
        Severity.WARNING,
        _burns("burnSlow", ("1d:5m", 288), ("2h:1m", 120)),
        "burnFor",
        "{{ $labels.topology }} was unavailable for too much of the last day, and still is at times",
        "By priority, a tenth of what a month allows was lost within a day, and the last two hours go on so.",
    ),
    Alert(
        "RepriseSpecRefused",
        Severity.WARNING,
        "max by (topology) (reprise_spec_refused) == 1",
        "refusedFor",
        "The newest spec of {{ $labels.topology }} is refused",
        "Nothing of the change takes effect: what was accepted before goes on, and where nothing was, nothing runs.",
    ),
    Alert(
        "RepriseZooKeeperSuspended",
        Severity.CRITICAL,
        'reprise_zookeeper_session{state="connected"} == 0',
        "zookeeperFor",
        "The {{ $labels.component }} at {{ $labels.instance }} has no ZooKeeper session",
        "Topologies run on, but failures are neither seen nor recovered from until ZooKeeper answers.",
    ),
    Alert(
        "RepriseControllerAbsent",
        Severity.CRITICAL,
        "absent(reprise_leader == 1) or max by (topology) (reprise_coordinator_present) == 0",
        "controllerFor",
        "Nobody decides about {{ or $labels.topology `any topology` }}",
        "No controller leads, or none holds the lead of this topology: a failure now would not be recovered from.",
    ),
    Alert(
        "RepriseDriverSilent",
        Severity.CRITICAL,
        "max by (topology) (reprise_driver_heartbeat_age_seconds) > <driverAge>",
        "driverFor",
        "The driver of {{ $labels.topology }} has said nothing for {{ $value | humanizeDuration }}",
        "Without its driver no batch of the topology is processed.",
    ),
    Alert(
        "ReprisePausedTooLong",
        Severity.WARNING,
        "max by (topology) (reprise_paused) == 1",
        "pausedFor",
        "{{ $labels.topology }} has been paused for a long time",
        "A paused topology releases no batch and takes no checkpoint; what it missed is replayed when it is resumed.",
    ),
)


def defaults() -> Mapping[str, str]:
    """Every threshold with its value."""
    return {threshold.name: threshold.value for threshold in THRESHOLDS}
