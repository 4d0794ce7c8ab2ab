"""Every metric that Reprise serves.

Rules: prefix `reprise_`, base units (seconds, bytes, cores), and labels whose number of values is known beforehand; no
label by partition or node, as a topology may have thousands.  `topology` is `namespace/name` in one label, because a
scraper puts a label `namespace` of its own on what it finds.  What a dead process would have to say is served by another
one: all that alerts rest on comes from the controller.
"""

from __future__ import annotations

from reprise.algorithms import ALGORITHMS
from reprise.algorithms.outside import Outside
from reprise.controller.observability.metrics.metric import Kind, Label, Metric, Place
from reprise.scheduler.node_start import LATER

PRIORITY_CLASSES = {"high": 8, "medium": 4, "low": 1}
"""Least priority of each class, of 1 to 10."""
QUERY_LABELS = 50
"""Queries that have a label value of their own, the most valuable first; all others are `other`."""
PLANNED_BY = (*ALGORITHMS, "reductions", "frontier", "other")
"""What a plan names as its algorithm: the one that was asked for, or that which `auto` found to be enough."""
OUTCOMES = ("complete", "partial", "nothing")
PARTITION_STATES = ("waiting", "restoring", "catching_up", "caught_up", "poisoned")
NODE_STATES = ("ready", "standby", "joining", "draining", "drained", "missing")
PHASES = ("settling", "waiting", "recovering", "verifying")
KINDS = ("blocking", "correlated", "driver", "start")
SESSIONS = ("connected", "suspended", "lost")
STEPS = ("prepare", "compute", "exchange", "settle")
START_PHASES = tuple(phase.value for phase in LATER)
REFUSALS = ("conflict", "forbidden", "invalid", "not_found", "unknown", "other")

_TOPOLOGY = Label("topology", bound="namespace/name, one a StreamTopology")
_CLASS = Label("priority_class", tuple(PRIORITY_CLASSES))
_ALL = (Place.CONTROLLER, Place.DRIVER)
_DRIVER = (Place.DRIVER,)


def _gauge(name: str, unit: str, text: str, *labels: Label, places: tuple[Place, ...] = ()) -> Metric:
    return Metric(name, Kind.GAUGE, unit, text, (_TOPOLOGY, *labels), places or (Place.CONTROLLER,))


def _counter(name: str, unit: str, text: str, *labels: Label, places: tuple[Place, ...] = ()) -> Metric:
    return Metric(name, Kind.COUNTER, unit, text, (_TOPOLOGY, *labels), places or (Place.CONTROLLER,))


METRICS: tuple[Metric, ...] = (
    # -- processes -----------------------------------------------------------------------------------------------------
    Metric(
        "reprise_build_info",
        Kind.GAUGE,
        "",
        "Always 1; which version of which component answers.",
        (Label("version", bound="one a release"), Label("component", ("operator", "run", "driver"))),
        _ALL,
    ),
    Metric(
        "reprise_leader",
        Kind.GAUGE,
        "",
        "1 for the controller that works, 0 for one that waits to take over.",
        (Label("component", ("operator", "run")),),
    ),
    Metric(
        "reprise_zookeeper_session",
        Kind.GAUGE,
        "",
        "1 for the state that this process' ZooKeeper session is in, else 0. Not connected: nothing is decided.",
        (Label("component", ("operator", "run", "driver")), Label("state", SESSIONS)),
        _ALL,
    ),
    Metric(
        "reprise_api_errors_total",
        Kind.COUNTER,
        "",
        "Requests to the Kubernetes API server that failed; unknown: no answer, or one of overload. "
        "Stays 0 where there is no API server.",
        (Label("reason", REFUSALS),),
    ),
    # -- what runs -----------------------------------------------------------------------------------------------------
    _gauge("reprise_coordinator_present", "", "1 while somebody holds the lead of the topology, else 0."),
    _gauge("reprise_paused", "", "1 while the topology is paused, else 0."),
    _gauge(
        "reprise_spec_refused",
        "",
        "1 while the newest spec of the StreamTopology is refused, else 0. What was accepted before it goes on.",
    ),
    _gauge("reprise_nodes_wanted", "", "Nodes that the topology asks for."),
    _gauge(
        "reprise_nodes",
        "",
        "Nodes: ready (at work), standby (host nothing), joining (alive, the driver does not use them yet), draining "
        "(to be emptied, host something), drained (to be emptied, host nothing), missing (wanted and not alive).",
        Label("state", NODE_STATES),
    ),
    _gauge(
        "reprise_queries",
        "",
        "Queries by how they stand and by priority: high from 8, medium from 4, low below.",
        Label("status", ("available", "recovering", "waiting")),
        _CLASS,
    ),
    _gauge(
        "reprise_availability_ratio",
        "",
        "Priority-weighted share of queries that are available, 0 to 1.",
    ),
    _gauge(
        "reprise_stalled_queries",
        "",
        "Queries that run and show nothing: every partition is at work, batches are due, and the output has not advanced "
        "for 15 s (60 s where no more than three batches are due).",
    ),
    _gauge(
        "reprise_lag_batches",
        "",
        "Batches between the last one that is due, released or not, and the output of the query that is furthest behind.",
        _CLASS,
    ),
    _gauge(
        "reprise_lag_seconds",
        "seconds",
        "The same in time: batches and the interval between two of them. 0 where the interval is 0.",
        _CLASS,
    ),
    _gauge(
        "reprise_partitions",
        "",
        "Partitions: waiting (no living node), restoring (placed, not at work), catching_up (at work, further behind "
        "than its steady lag in an incident), caught_up, poisoned (their code raised).",
        Label("state", PARTITION_STATES),
    ),
    _gauge("reprise_horizon_batches", "", "The last batch that was released and due."),
    _gauge("reprise_driver_heartbeat_age_seconds", "seconds", "Since the driver last said how things stand."),
    _gauge(
        "reprise_jobs_failing",
        "",
        "1 while Spark jobs fail again and again in the same way, by the report of the driver, else 0.",
    ),
    _gauge(
        "reprise_connector_waits",
        "",
        "Partitions at work that wait for their source, which cannot be read, or for their sink, which cannot be written. "
        "They go on by themselves when it answers.",
        Label("connector", tuple(Outside)),
    ),
    _gauge("reprise_problems", "", "Problems that the driver complains of (the last twenty are kept)."),
    _gauge(
        "reprise_marked_batches",
        "",
        "Batches marked as lacking rows (amnesia, reprise skip) in the open incident and those of the last fifteen minutes, "
        "summed over queries.",
    ),
    _gauge(
        "reprise_standbys_wanted",
        "",
        "Partitions that are to have a standby (availability: active-standby, passive-standby).",
    ),
    _gauge(
        "reprise_standbys_not_apart",
        "",
        "Standbys that are placed and not known to be in another failure domain than their partition, of operators that "
        "name one (standby.failureDomain).",
    ),
    _gauge(
        "reprise_recovery_expected_seconds",
        "seconds",
        "In which the query that would take longest would be back if a node were lost now and another one had room; of the "
        "queries that miss nothing, without catching up.",
    ),
    _gauge(
        "reprise_recovery_objectives_missed",
        "",
        "Queries with output.recovery.objective that would take longer than that.",
    ),
    _gauge(
        "reprise_standbys_missing",
        "",
        "Partitions that are to have a standby (availability: active-standby, passive-standby) and have none that could be "
        "promoted.",
    ),
    _gauge(
        "reprise_upstream_backups_missing",
        "",
        "Partitions that are to be fed again by their upstreams (availability: upstream-backup) and would come from a "
        "checkpoint now.",
    ),
    # -- recovery ------------------------------------------------------------------------------------------------------
    _gauge(
        "reprise_incident_open", "", "1 while an incident of this kind is open, else 0.", Label("kind", KINDS)
    ),
    _gauge(
        "reprise_incident_phase", "", "1 for the phase of the open incident, else 0.", Label("phase", PHASES)
    ),
    _gauge("reprise_incident_age_seconds", "seconds", "Since the open incident began; 0 without one."),
    _gauge("reprise_incident_lost_nodes", "", "Nodes that the open incident has lost; 0 without one."),
    _counter("reprise_incidents_total", "", "Incidents that were closed.", Label("kind", KINDS)),
    _counter(
        "reprise_plans_total",
        "",
        "Plans: complete (no query is left out), partial (some are), nothing (restores no partition).",
        Label("algorithm", PLANNED_BY),
        Label("outcome", OUTCOMES),
    ),
    Metric(
        "reprise_planning_seconds",
        Kind.HISTOGRAM,
        "seconds",
        "Time spent on a plan.",
        (_TOPOLOGY,),
        buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    ),
    Metric(
        "reprise_node_start_seconds",
        Kind.HISTOGRAM,
        "seconds",
        "From the request for a node until a phase of its start was over, once for each node that came while an incident "
        "was open: agent, heartbeat, executor, task, host, ready (the driver can use it), "
        "planned (a plan gives it partitions), work (one is at work). What is not known is not counted.",
        (_TOPOLOGY, Label("phase", START_PHASES)),
        buckets=(0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0),
    ),
    _gauge(
        "reprise_plan_gap_ratio",
        "",
        "Of the newest plan: what its proven bound leaves open, (bound - value) / bound; 0 is optimal.",
    ),
    _gauge(
        "reprise_plan_infeasible",
        "",
        "1 while the newest plan of the open incident restores nothing although queries wait, else 0.",
    ),
    _gauge(
        "reprise_free_cpu_cores",
        "cores",
        "Free under the cap on living nodes, at the costs that plans count: in an incident those from before it.",
    ),
    _gauge("reprise_waiting_cpu_cores", "cores", "What partitions without a living node need together."),
    _gauge(
        "reprise_waiting_queries_that_fit",
        "",
        "Waiting queries of which each alone would fit the free CPU of the living nodes.",
    ),
    _gauge(
        "reprise_waiting_queries_without_a_node",
        "",
        "Waiting queries that fit the free CPU of the living nodes in sum, and no arrangement on single nodes was found.",
    ),
    _gauge(
        "reprise_recovery_progress_batches",
        "",
        "Positions of the output partitions of all queries that are not available, and of their partitions at work, "
        "summed: stands still when recovery does.",
    ),
    # -- checkpoints ---------------------------------------------------------------------------------------------------
    _gauge(
        "reprise_checkpoint_age_seconds",
        "seconds",
        "Since the newest global checkpoint was complete; before the first, since the topology was first seen here; 0 when "
        "the stream has ended.",
    ),
    _gauge(
        "reprise_checkpoint_interval_seconds", "seconds", "Between two global checkpoints, by the policy."
    ),
    _gauge(
        "reprise_checkpoint_duration_seconds",
        "seconds",
        "From announcing to completing the newest checkpoint.",
    ),
    _gauge(
        "reprise_checkpoint_size_bytes",
        "bytes",
        "States of the newest global checkpoint, with their pages in files of earlier ones.",
    ),
    _gauge("reprise_checkpoint_position_batches", "", "Batch that the newest global checkpoint covers."),
    # -- buffers -------------------------------------------------------------------------------------------------------
    _gauge(
        "reprise_buffer_bytes",
        "bytes",
        "Buffered output of all nodes; disk is what was spilled.",
        Label("medium", ("memory", "disk")),
        places=_DRIVER,
    ),
    _gauge(
        "reprise_limited_state_bytes",
        "bytes",
        "States in pages of all nodes, where checkpoint.stateMemory limits them: what of them is in memory, and their files "
        "on disk, which have what is in memory, too.",
        Label("medium", ("memory", "disk")),
        places=_DRIVER,
    ),
    _gauge(
        "reprise_buffer_fill_ratio",
        "",
        "Of the fullest node: buffered bytes over recovery.bufferMemory + recovery.bufferDisk.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_spilled_bytes_total", "bytes", "Buffered output that was moved to disk.", places=_DRIVER
    ),
    # -- operators ----------------------------------------------------------------------------------------------------
    _gauge(
        "reprise_operator_counters",
        "",
        "What an operator counts, summed over its partitions at work: `late_rows` were dropped as too late, `keys` are "
        "held. Goes back with a rollback to a checkpoint.",
        Label("operator", bound="operators of the topology that count something"),
        Label("counter", bound="at most 20 an operator"),
        places=_DRIVER,
    ),
    _gauge("reprise_state_bytes", "bytes", "Newest stored state of all partitions together.", places=_DRIVER),
    # -- data plane ----------------------------------------------------------------------------------------------------
    _counter(
        "reprise_restore_bytes_total", "bytes", "State read by partitions that were restored.", places=_DRIVER
    ),
    _counter(
        "reprise_restore_seconds_total",
        "seconds",
        "From the order to restore a partition until it is at work, summed over partitions.",
        places=_DRIVER,
    ),
    _counter("reprise_restored_partitions_total", "", "Partitions that were restored.", places=_DRIVER),
    _counter(
        "reprise_restored_states_total",
        "",
        "States that partitions began with: read from their own node's copies, or from the checkpoint store.",
        Label("origin", ("node", "store")),
        places=_DRIVER,
    ),
    _counter(
        "reprise_snapshots_total",
        "",
        "Snapshots that partitions have stored, where each does so by its own clock: by that (local), or since messages "
        "would have made the ones before useless (forced).",
        Label("cause", ("local", "forced")),
        places=_DRIVER,
    ),
    _counter(
        "reprise_snapshot_bytes_total",
        "bytes",
        "What those snapshots took in the checkpoint store; with `checkpoint.protocol: eventual` the segments of logs.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_snapshots_skipped_total",
        "",
        "Snapshots by own clocks that were newer than those to which their partitions went back: they were stored in vain.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_snapshot_files_total",
        "",
        "Files of states that were stored, with rounds, too, whether their checkpoint was completed or not.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_snapshot_pause_seconds_total",
        "seconds",
        "For which partitions stood still while the states of those files were frozen; divided by the number of files, "
        "the mean pause.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_snapshot_store_seconds_total",
        "seconds",
        "From freezing the states of those files until each was in the store, summed; partitions work meanwhile.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_footprints_total",
        "",
        "States of slots in those, each as often as it was written (`checkpoint.protocol: eventual`).",
        places=_DRIVER,
    ),
    _counter(
        "reprise_message_bytes_total",
        "bytes",
        "Rows that went between nodes in messages, encoded, each as often as it was sent; what "
        "`reprise_message_header_bytes_total` and `reprise_standby_bytes_total` add to.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_standby_bytes_total",
        "bytes",
        "What went to standbys on other nodes, encoded: rows once more to active ones, states and outputs to passive ones.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_acknowledgement_bytes_total",
        "bytes",
        "What nodes were told, with each job, about standbys and about output that upstream backup needs no more.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_message_header_bytes_total",
        "bytes",
        "What went between nodes with messages for `checkpoint.protocol: communication-induced`, beside rows.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_replay_bytes_total",
        "bytes",
        "Input that restored partitions applied again, up to where the stream was before.",
        places=_DRIVER,
    ),
    _counter(
        "reprise_replay_seconds_total",
        "seconds",
        "From a restored partition's work until it is where the stream was before, summed over partitions.",
        places=_DRIVER,
    ),
    Metric(
        "reprise_superstep_seconds",
        Kind.HISTOGRAM,
        "seconds",
        "A job or a round by phase: prepare (orders), compute (the busiest node; 0 beside an exchange, where nodes work "
        "all the time), exchange (the rest until all have reported), settle (reports and checkpoint records).",
        (_TOPOLOGY, Label("phase", STEPS)),
        _DRIVER,
        (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0, 60.0),
    ),
    _counter(
        "reprise_failed_jobs_total", "", "Jobs and rounds that failed or were cancelled.", places=_DRIVER
    ),
    Metric(
        "reprise_latency_seconds",
        Kind.HISTOGRAM,
        "seconds",
        "From when a batch was due until a query's output of it was written, once a batch.",
        (_TOPOLOGY, Label("query", bound=f"the {QUERY_LABELS} most valuable output partitions, and `other`")),
        _DRIVER,
        (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0),
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}


def priority_class(priority: int) -> str:
    """The class of a query's priority, 1 to 10."""
    return next(name for name, least in PRIORITY_CLASSES.items() if priority >= least)
