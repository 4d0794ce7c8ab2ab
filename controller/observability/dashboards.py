"""What the three dashboards show: the state of everything, one incident, and the data plane.

The overview answers "is anything wrong, and for whom"; the incident "what comes back, when, and what is it waiting for"; the
data plane "where does the time go".  Every query is evaluated against a real Prometheus in a test.
"""

from __future__ import annotations

from reprise.controller.observability.dashboard_model import TOPOLOGY, Dashboard, Panel, Query, to_json

RATE = "[$__rate_interval]"


def _by(names: str, metric: str, more: str = "", function: str = "sum") -> str:
    return f"{function} by ({names}) ({metric}{{{TOPOLOGY}{', ' if more else ''}{more}}})"


def _rate(names: str, metric: str) -> str:
    return f"sum by ({names}) (rate({metric}{{{TOPOLOGY}}}{RATE}))"


def _quantile(share: str, names: str, metric: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{names}, le', f'{metric}_bucket')})"


def _mean(names: str, metric: str) -> str:
    return f"{_rate(names, f'{metric}_sum')} / {_rate(names, f'{metric}_count')}"


def _a_file(metric: str) -> str:
    return f"{_rate('topology', metric)} / {_rate('topology', 'reprise_snapshot_files_total')}"


AVAILABILITY = Panel(
    "Availability over time",
    "Priority-weighted share of queries that are available.",
    (Query(_by("topology", "reprise_availability_ratio", function="min")),),
    "percentunit",
    width=12,
)
QUERIES = Panel(
    "Queries by status",
    "Recovering: placed, on its way. Waiting: something that it needs has no node.",
    (Query(_by("status", "reprise_queries"), "{{status}}"),),
    stacked=True,
    width=12,
)
LATENCY = Panel(
    "End-to-end latency, 95 %",
    "From when a batch was due until its output was written; the most valuable queries one by one.",
    (Query(_quantile("0.95", "query", "reprise_latency_seconds"), "{{query}}"),),
    "s",
    width=12,
)
FILL = Panel(
    "Fullest buffer",
    "Of memory and disk together; at 100 % partitions of that node wait.",
    (Query(_by("topology", "reprise_buffer_fill_ratio", function="max")),),
    "percentunit",
)

OVERVIEW = Dashboard(
    "reprise-overview",
    "Reprise / Overview",
    "All topologies: what is down, for whom, and whether somebody looks after it.",
    (
        Panel(
            "Availability",
            "Priority-weighted share of queries that are available.",
            (Query(_by("topology", "reprise_availability_ratio", function="min")),),
            "percentunit",
            "stat",
            6,
            1.0,
            low_is_bad=True,
        ),
        Panel(
            "Open incidents",
            "By topology; see the incident dashboard.",
            (Query(_by("topology", "reprise_incident_open")),),
            kind="stat",
            width=6,
            bad=1,
        ),
        Panel(
            "Queries down, by priority",
            "High from priority 8, medium from 4.",
            (Query(_by("priority_class", "reprise_queries", 'status!="available"'), "{{priority_class}}"),),
            kind="stat",
            width=6,
            bad=1,
        ),
        Panel(
            "Alerts",
            "Firing now.",
            (Query('sum(ALERTS{alertname=~"Reprise.+", alertstate="firing"}) or vector(0)', "firing"),),
            kind="stat",
            width=6,
            bad=1,
        ),
        AVAILABILITY,
        QUERIES,
        Panel(
            "Nodes",
            "Joining: alive, not used yet. Missing: wanted and not alive.",
            (Query(_by("state", "reprise_nodes"), "{{state}}"),),
            stacked=True,
            width=12,
        ),
        LATENCY,
        Panel(
            "Batches behind, by priority",
            "Of the query that is furthest behind; and how many queries run and do not advance.",
            (
                Query(_by("priority_class", "reprise_lag_batches", function="max"), "{{priority_class}}"),
                Query(
                    _by("topology", "reprise_stalled_queries", function="max"), "{{topology}} queries stalled"
                ),
            ),
        ),
        Panel(
            "Time behind, by priority",
            "Of the query that is furthest behind: how long ago what it shows was due.",
            (Query(_by("priority_class", "reprise_lag_seconds", function="max"), "{{priority_class}}"),),
        ),
        Panel(
            "Checkpoint age and interval",
            "An age of several intervals means slow storage, an incident or a pause.",
            (
                Query(_by("topology", "reprise_checkpoint_age_seconds", function="max"), "{{topology}} age"),
                Query(
                    _by("topology", "reprise_checkpoint_interval_seconds", function="max"),
                    "{{topology}} interval",
                ),
            ),
            "s",
        ),
        Panel(
            "Since the driver spoke",
            "It reports at least every 2 s, also while a job hangs.",
            (Query(_by("topology", "reprise_driver_heartbeat_age_seconds", function="max")),),
            "s",
        ),
        Panel(
            "ZooKeeper sessions",
            "1: connected. Without a session nothing is decided.",
            (Query('min by (component) (reprise_zookeeper_session{state="connected"})', "{{component}}"),),
            kind="stat",
            width=6,
            bad=1,
            low_is_bad=True,
        ),
        Panel(
            "Controllers that lead",
            "One must.",
            (Query("sum(reprise_leader)", "leading"),),
            kind="stat",
            width=6,
            bad=1,
            low_is_bad=True,
        ),
        Panel(
            "Paused",
            "Topologies that release no batch because somebody has said so.",
            (Query(_by("topology", "reprise_paused", function="max")),),
            kind="stat",
            width=6,
            bad=1,
        ),
        Panel(
            "Versions",
            "What runs.",
            (Query("count by (component, version) (reprise_build_info)", "{{component}} {{version}}"),),
            kind="stat",
            width=6,
        ),
        Panel(
            "Refused requests to the API server",
            "Conflicts and not-found are reckoned with; unknown means no answer.",
            (Query(f"sum by (reason) (rate(reprise_api_errors_total{RATE}))", "{{reason}}"),),
            "reqps",
            width=24,
        ),
    ),
)

INCIDENT = Dashboard(
    "reprise-incident",
    "Reprise / One incident",
    "What comes back, what waits, for what, and how fast it goes.",
    (
        Panel(
            "Age of the incident",
            "0 without one.",
            (Query(_by("topology", "reprise_incident_age_seconds", function="max")),),
            "s",
            "stat",
            6,
        ),
        Panel(
            "Nodes lost",
            "In the open incident.",
            (Query(_by("topology", "reprise_incident_lost_nodes", function="max")),),
            kind="stat",
            width=6,
            bad=1,
        ),
        Panel(
            "Waiting queries that would fit now, and in pieces",
            "The first above 0 for long: recovery does not use what is there. The second: no single node has room for them.",
            (
                Query(_by("topology", "reprise_waiting_queries_that_fit", function="max"), "would fit"),
                Query(_by("topology", "reprise_waiting_queries_without_a_node", function="max"), "in pieces"),
            ),
            kind="stat",
            width=6,
        ),
        Panel(
            "Newest plan: gap to its bound",
            "0 is optimal.",
            (Query(_by("topology", "reprise_plan_gap_ratio", function="max")),),
            "percentunit",
            "stat",
            6,
        ),
        Panel(
            "Phase",
            "Settling: the rest of the burst is waited for. Waiting: no room. Verifying: a checkpoint is waited for.",
            (Query(_by("phase", "reprise_incident_phase", function="max"), "{{phase}}"),),
            kind="state-timeline",
            width=24,
        ),
        AVAILABILITY,
        QUERIES,
        Panel(
            "Partitions",
            "Waiting, restoring, catching up, caught up.",
            (Query(_by("state", "reprise_partitions"), "{{state}}"),),
            stacked=True,
            width=12,
        ),
        Panel(
            "Capacity",
            "CPU that is free on living nodes, and that waiting partitions need.",
            (
                Query(_by("topology", "reprise_free_cpu_cores"), "{{topology}} free"),
                Query(_by("topology", "reprise_waiting_cpu_cores"), "{{topology}} needed"),
            ),
            "short",
            width=12,
        ),
        Panel(
            "Progress",
            "Positions of what is not available, summed; a flat line in an incident is a stall.",
            (Query(_by("topology", "reprise_recovery_progress_batches")),),
        ),
        Panel(
            "Batches that may lack rows",
            "Of the open incident and those of the last fifteen minutes, summed over queries; each is marked.",
            (Query(_by("topology", "reprise_marked_batches")),),
        ),
        Panel(
            "Expected seconds of a recovery",
            "Of the query that would take longest if a node were lost now and another one had room.",
            (Query(_by("topology", "reprise_recovery_expected_seconds", function="max")),),
        ),
        Panel(
            "Queries beyond their recovery objective",
            "They would take longer than `output.recovery.objective` if a node were lost now.",
            (Query(_by("topology", "reprise_recovery_objectives_missed")),),
        ),
        Panel(
            "Partitions without their standby",
            "Of operators with `availability: active-standby` or `passive-standby`; they come from a checkpoint if they are "
            "lost now. Those whose standby is not known to be in another failure domain may be lost with it.",
            (
                Query(_by("topology", "reprise_standbys_missing"), "{{topology}} without"),
                Query(_by("topology", "reprise_standbys_wanted"), "{{topology}} wanted"),
                Query(_by("topology", "reprise_standbys_not_apart"), "{{topology}} not apart"),
            ),
        ),
        Panel(
            "Partitions without their upstream backup",
            "Of operators with `availability: upstream-backup`; they come from a checkpoint if they are lost now.",
            (Query(_by("topology", "reprise_upstream_backups_missing")),),
        ),
        Panel(
            "Plans",
            "By what they could restore.",
            (Query(f"sum by (outcome) (increase(reprise_plans_total{{{TOPOLOGY}}}{RATE}))", "{{outcome}}"),),
        ),
        Panel(
            "Time spent on a plan",
            "Mean.",
            (Query(_mean("topology", "reprise_planning_seconds")),),
            "s",
        ),
        Panel(
            "Starts of nodes",
            "Mean seconds from the request for a node until each phase of its start was over.",
            (Query(_mean("phase", "reprise_node_start_seconds")),),
            "s",
        ),
        Panel(
            "Restored and replayed",
            "State read from checkpoints, and input that was applied again.",
            (
                Query(_rate("topology", "reprise_restore_bytes_total"), "{{topology}} restored"),
                Query(_rate("topology", "reprise_replay_bytes_total"), "{{topology}} replayed"),
            ),
            "Bps",
        ),
        Panel(
            "Time to restore a partition",
            "From the order until it is at work, mean.",
            (
                Query(
                    f"{_rate('topology', 'reprise_restore_seconds_total')} / "
                    f"{_rate('topology', 'reprise_restored_partitions_total')}"
                ),
            ),
            "s",
        ),
        Panel(
            "Where states came from",
            "States that partitions began with, a second: from their own node's copies, or from the checkpoint store.",
            (Query(_rate("origin", "reprise_restored_states_total"), "{{origin}}"),),
            "ops",
        ),
        FILL,
    ),
)

DATA_PLANE = Dashboard(
    "reprise-data-plane",
    "Reprise / Data plane",
    "Where the time goes while batches are processed, and what buffers and checkpoints take.",
    (
        Panel(
            "Chain of supersteps by phase",
            "Mean. Compute is the busiest node; exchange is Spark's scheduling and shuffle.",
            (Query(_mean("phase", "reprise_superstep_seconds"), "{{phase}}"),),
            "s",
            stacked=True,
            width=12,
        ),
        Panel(
            "Chain of supersteps by phase, 99 %",
            "The slow ones.",
            (Query(_quantile("0.99", "phase", "reprise_superstep_seconds"), "{{phase}}"),),
            "s",
            width=12,
        ),
        LATENCY,
        Panel(
            "Batches",
            "Released a second.",
            (Query(f"sum by (topology) (deriv(reprise_horizon_batches{{{TOPOLOGY}}}{RATE}))"),),
            "ops",
            width=12,
        ),
        Panel(
            "Failed jobs",
            "Spark jobs that failed or were cancelled because a node was lost.",
            (Query(_rate("topology", "reprise_failed_jobs_total")),),
            "ops",
        ),
        Panel(
            "Partitions replaying",
            "Partition-seconds a second: how many replay at a time.",
            (Query(_rate("topology", "reprise_replay_seconds_total")),),
        ),
        Panel(
            "Set aside, and refused",
            "Partitions whose code raises, which only changed code or input brings back; and specs that do not take effect.",
            (
                Query(_by("topology", "reprise_partitions", 'state="poisoned"'), "{{topology}} partitions"),
                Query(_by("topology", "reprise_spec_refused", function="max"), "{{topology}} spec"),
            ),
        ),
        Panel(
            "Problems",
            "What the driver complains of (`reprise status` names it), and partitions that wait for a source or a sink.",
            (
                Query(_by("topology", "reprise_problems", function="max")),
                Query(
                    _by("topology, connector", "reprise_connector_waits", function="max"),
                    "{{topology}} waits for its {{connector}}",
                ),
            ),
        ),
        Panel(
            "Buffers",
            "Output kept for partitions that may have to be fed again.",
            (Query(_by("medium", "reprise_buffer_bytes"), "{{medium}}"),),
            "bytes",
            stacked=True,
        ),
        FILL,
        Panel(
            "Spilled",
            "Buffered output that went to disk.",
            (Query(_rate("topology", "reprise_spilled_bytes_total")),),
            "Bps",
        ),
        Panel(
            "Stored state",
            "Newest stored state of all partitions together.",
            (Query(_by("topology", "reprise_state_bytes", function="max")),),
            "bytes",
        ),
        Panel(
            "States with a limit of memory",
            "Where `checkpoint.stateMemory` is given: what of states is in memory, and their files on the nodes' disks.",
            (Query(_by("medium", "reprise_limited_state_bytes"), "{{medium}}"),),
            "bytes",
        ),
        Panel(
            "Late rows dropped",
            "Rows that came after their windows were closed. Goes back with a rollback to a checkpoint.",
            (Query(_by("topology, operator", "reprise_operator_counters", 'counter="late_rows"', "max")),),
        ),
        Panel(
            "Checkpoint duration",
            "From announcing to completing it.",
            (Query(_by("topology", "reprise_checkpoint_duration_seconds", function="max")),),
            "s",
        ),
        Panel(
            "Checkpoint size",
            "States of the newest, with what they have in files of earlier ones.",
            (Query(_by("topology", "reprise_checkpoint_size_bytes", function="max")),),
            "bytes",
        ),
        Panel(
            "Snapshots by cause",
            "Where partitions store themselves, a second: by their own clocks, or forced by messages.",
            (Query(_rate("topology, cause", "reprise_snapshots_total"), "{{topology}} {{cause}}"),),
            "ops",
        ),
        Panel(
            "Bytes of snapshots",
            "Where partitions store themselves, a second; with eventual checkpoints segments of their logs.",
            (Query(_rate("topology", "reprise_snapshot_bytes_total")),),
            "Bps",
        ),
        Panel(
            "Time of a snapshot",
            "For how long a partition stood still for its state (pause), and from then until its file was stored; means.",
            (
                Query(_a_file("reprise_snapshot_pause_seconds_total"), "{{topology}} pause"),
                Query(_a_file("reprise_snapshot_store_seconds_total"), "{{topology}} store"),
            ),
            "s",
        ),
        Panel(
            "Snapshots in vain",
            "Where partitions store themselves, since an hour ago: newer than those to which they went back.",
            (Query(f"sum by (topology) (increase(reprise_snapshots_skipped_total{{{TOPOLOGY}}}[1h]))"),),
        ),
        Panel(
            "Footprints",
            "Slots that were stored with eventual checkpoints, a second.",
            (Query(_rate("topology", "reprise_footprints_total")),),
            "ops",
        ),
        Panel(
            "Messages and their headers",
            "Between nodes; headers are for communication-induced checkpoints, copies for standbys.",
            (
                Query(_rate("topology", "reprise_message_header_bytes_total"), "{{topology}} headers"),
                Query(_rate("topology", "reprise_standby_bytes_total"), "{{topology}} copies"),
                Query(
                    _rate("topology", "reprise_acknowledgement_bytes_total"), "{{topology}} acknowledgements"
                ),
                Query(_rate("topology", "reprise_message_bytes_total"), "{{topology}} rows"),
            ),
            "Bps",
        ),
        Panel(
            "Checkpointed up to batch",
            "Rises step by step; flat while an incident is open.",
            (Query(_by("topology", "reprise_checkpoint_position_batches", function="max")),),
        ),
        Panel(
            "CPU of controller and driver",
            "Cores.",
            (
                Query(
                    f"sum by (component) (rate(process_cpu_seconds_total{RATE}) "
                    "* on (instance) group_left (component) reprise_build_info)",
                    "{{component}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Memory of controller and driver",
            "Resident; the driver's JVM is not in it.",
            (
                Query(
                    "sum by (component) (process_resident_memory_bytes "
                    "* on (instance) group_left (component) reprise_build_info)",
                    "{{component}}",
                ),
            ),
            "bytes",
            width=12,
        ),
    ),
)

DASHBOARDS = (OVERVIEW, INCIDENT, DATA_PLANE)


def files() -> dict[str, str]:
    """Text of every dashboard by its file name."""
    return {f"{one.uid}.json": to_json(one, DASHBOARDS) for one in DASHBOARDS}
