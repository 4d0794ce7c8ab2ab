"""The controller's metrics of one topology: a pure function of what was last seen of it.

Everything is derived from records, so another process that looks at the same records says the same, and a controller that
was replaced goes on where the one before left off.  While ZooKeeper is away the last known values stand: the session's own
metric and the driver's heartbeat age say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from reprise.algorithms.outside import Outside
from reprise.controller.observability.metrics import catalogue
from reprise.controller.observability.metrics.look import Look
from reprise.controller.observability.metrics.metric import Sample
from reprise.controller.observability.metrics.recovery import recovery_samples
from reprise.controller.status.partition_state import PartitionState, node_states, partition_state
from reprise.controller.status.query_state import Status
from reprise.spark_jobs.topology import StreamTopology

_LABELS = {PartitionState.RUNNING: "caught_up", PartitionState.CATCHING_UP: "catching_up"}
"""Where the label of a partition's state is not the state's own name."""


def topology_samples(look: Look, now: float) -> Iterator[Sample]:
    """Everything about one topology; `now` in unix seconds."""
    for sample in (*_standing(look, now), *_checkpoints(look, now), *recovery_samples(look, now)):
        yield Sample(
            sample.metric, {"topology": look.name, **sample.labels}, sample.value, sample.observations
        )


def _standing(look: Look, now: float) -> Iterator[Sample]:
    seen, progress = look.state.observation, look.state.observation.progress
    yield Sample("reprise_coordinator_present", {}, seen.led)
    yield Sample("reprise_paused", {}, seen.desired is not None and seen.desired.paused)
    yield Sample("reprise_nodes_wanted", {}, look.resource.nodes.count)
    yield Sample("reprise_availability_ratio", {}, look.state.share)
    yield Sample("reprise_horizon_batches", {}, progress.horizon if progress else 0)
    spoken = progress.time if progress else look.since
    yield Sample("reprise_driver_heartbeat_age_seconds", {}, max(0.0, now - spoken))
    yield Sample("reprise_jobs_failing", {}, progress is not None and bool(progress.stuck))
    for kind in Outside:
        waiting = list(progress.waits.values()).count(kind) if progress else 0
        yield Sample("reprise_connector_waits", {"connector": kind.value}, waiting)
    yield Sample("reprise_problems", {}, len(seen.problems))
    for state, nodes in _nodes(look).items():
        yield Sample("reprise_nodes", {"state": state}, nodes)
    for state, partitions in _partitions(look).items():
        yield Sample("reprise_partitions", {"state": state}, partitions)
    yield from _queries(look)


def _queries(look: Look) -> Iterator[Sample]:
    counts: Counter[tuple[Status, str]] = Counter()
    lag: dict[str, int] = dict.fromkeys(catalogue.PRIORITY_CLASSES, 0)
    for query in look.state.queries:
        name = catalogue.priority_class(query.priority)
        counts[query.status, name] += 1
        lag[name] = max(lag[name], query.lag)
    yield Sample("reprise_stalled_queries", {}, len(look.state.stalled))
    for name, batches in lag.items():
        yield Sample("reprise_lag_batches", {"priority_class": name}, batches)
        seconds = batches * look.resource.batch_interval_s
        yield Sample("reprise_lag_seconds", {"priority_class": name}, seconds)
        for status in Status:
            labels = {"status": status.value, "priority_class": name}
            yield Sample("reprise_queries", labels, counts[status, name])


def _nodes(look: Look) -> Mapping[str, int]:
    seen = look.state.observation
    counts = Counter(state.value for state in node_states(seen.nodes, seen).values())
    counts["missing"] = max(0, look.resource.nodes.count - len(seen.nodes))
    return {state: counts[state] for state in catalogue.NODE_STATES}


def _partitions(look: Look) -> Mapping[str, int]:
    seen = look.state.observation
    states = Counter(partition_state(p.id, seen) for p in look.topology.partitions)
    counts = {_LABELS.get(state, state.value): number for state, number in states.items()}
    return {label: counts.get(label, 0) for label in catalogue.PARTITION_STATES}


def _checkpoints(look: Look, now: float) -> Iterator[Sample]:
    newest, progress = look.state.observation.checkpoint, look.state.observation.progress
    since = newest.time if newest else look.since
    over = progress is not None and progress.done
    yield Sample("reprise_checkpoint_age_seconds", {}, 0.0 if over else max(0.0, now - since))
    yield Sample("reprise_checkpoint_interval_seconds", {}, _interval(look.resource))
    yield Sample("reprise_checkpoint_position_batches", {}, newest.covers.oldest if newest else 0)
    yield Sample("reprise_checkpoint_size_bytes", {}, newest.size_bytes if newest else 0)
    yield Sample("reprise_checkpoint_duration_seconds", {}, newest.seconds if newest else 0)


def _interval(resource: StreamTopology) -> float:
    policy = resource.checkpoint
    if policy.every_batches is not None:
        return policy.every_batches * resource.batch_interval_s
    return policy.interval_s or 0.0
