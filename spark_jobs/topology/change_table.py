"""What a change of each field of a running topology does: one table, which operator, command line and docs go by.

Paths are those of the resource below `spec`, with `[]` for the items of a list that have names; `metadata` stands beside.
A row speaks for all that is below its path, unless a row with a longer path speaks for it.  Rows are added with fields:
a test finds a field that no row names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """When a changed field takes effect in a topology that runs."""

    AT_ONCE = "at once"
    """Driver, executors and batches go on; the next decision is made with it."""
    CHECKPOINT = "from the next checkpoint on"
    """The same, and what was begun before is ended as it was."""
    RESTART = "with a new driver"
    """The driver is started anew, outside of a recovery, and everything goes back to the newest checkpoint; output stays as
    it is."""
    DRAIN = "after a drain"
    """The driver stops at a checkpoint after which nothing was released, and a new one goes on from there."""
    QUERIES = "where the stream has drained"
    """Queries come or go: driver and coordinator begin anew behind a checkpoint after which nothing was released."""
    NEVER = "never"
    """It takes a topology of another name, or one that is deleted and created anew."""

    @property
    def in_place(self) -> bool:
        """Whether driver and executors stay the same processes."""
        return self in (Effect.AT_ONCE, Effect.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Row:
    """What is to be said of one field."""

    path: str
    effect: Effect
    reason: str


_NOBODY = "nothing that runs reads it"
_PLANS = "the coordinator plans with it"
_LOAD = "plans count it; no pod depends on it"
_WORTH = "plans and the order of restores go by it"
_CODE = "batches that were shown would come out differently"
_FLIGHT = "what is in flight belongs to the old graph"
_ELSEWHERE = "output goes elsewhere"
_STATE = "state is kept by partition"
_GRAPH = "the partitions that are there, and who reads whom, are part of each checkpoint and of what hosts were told"
_STORED = "hosts learn it when their driver begins"
_STORE = "the stores of driver and hosts are opened with it"
_PODS = "pods are made from it"
_VARIABLES = "code may read its environment"
_REVISION = "it stands with the operator in the record of who made which batches"
_FIRST_START = "it is read when the topology starts for the first time"
_RHYTHM = "the driver asks for the next checkpoint by it"

_T = tuple[tuple[str, Effect, str], ...]
_METADATA: _T = (
    ("metadata.name", Effect.NEVER, "records, pods and incidents are of this name"),
    ("metadata.namespace", Effect.NEVER, "records and pods are in it"),
    ("metadata.labels", Effect.AT_ONCE, _NOBODY),
    ("metadata.annotations", Effect.AT_ONCE, _NOBODY),
)
_GRAPH_ROWS: _T = (
    ("sources[]", Effect.NEVER, f"a source is added or removed: {_GRAPH}"),
    ("sources[].name", Effect.NEVER, _GRAPH),
    ("sources[].class", Effect.DRAIN, _CODE),
    ("sources[].parallelism", Effect.NEVER, "the records of what was read are kept by partition"),
    ("sources[].with", Effect.DRAIN, _CODE),
    ("sources[].resources.cpu", Effect.AT_ONCE, _LOAD),
    ("operators[]", Effect.QUERIES, "a query is added or removed, and what stays does not read from it"),
    ("operators[].name", Effect.NEVER, _GRAPH),
    ("operators[].class", Effect.DRAIN, _CODE),
    ("operators[].parallelism", Effect.NEVER, _STATE),
    ("operators[].with", Effect.DRAIN, _CODE),
    ("operators[].resources.cpu", Effect.AT_ONCE, _LOAD),
    ("operators[].deterministic", Effect.DRAIN, "what is shown before a checkpoint covers it follows from it"),
    ("operators[].availability", Effect.RESTART, _STORED),
    ("operators[].standby.every", Effect.RESTART, _STORED),
    ("operators[].standby.failureDomain", Effect.AT_ONCE, "the coordinator places with it; standbys may move"),
    ("operators[].inputs", Effect.NEVER, _FLIGHT),
    ("operators[].inputs[].from", Effect.NEVER, _FLIGHT),
    ("operators[].inputs[].by", Effect.NEVER, "state lies where the keys were sent"),
    ("operators[].inputs[].broadcast", Effect.NEVER, "state lies where the rows were sent"),
    ("operators[].inputs[].forward", Effect.NEVER, "state lies where the rows were sent"),
    ("operators[].inputs[].feedback", Effect.NEVER, "the order of batches over the edge follows from it"),
    ("operators[].checkpoint", Effect.DRAIN, _REVISION),
    ("operators[].checkpoint.interval", Effect.DRAIN, _REVISION),
    ("operators[].output", Effect.DRAIN, "what was computed and not shown begins to be shown, or ends"),
    ("operators[].output.priority", Effect.AT_ONCE, _WORTH),
    ("operators[].output.priorities", Effect.AT_ONCE, _WORTH),
    ("operators[].output.format", Effect.DRAIN, _CODE),
    ("operators[].output.sink", Effect.DRAIN, _ELSEWHERE),
    ("operators[].output.sink.class", Effect.DRAIN, _ELSEWHERE),
    ("operators[].output.sink.with", Effect.DRAIN, _ELSEWHERE),
    ("operators[].output.recovery", Effect.RESTART, _STORED),
    ("operators[].output.recovery.objective", Effect.RESTART, _STORED),
)  # fmt: skip
_CHECKPOINT_ROWS: _T = (
    ("checkpoint.protocol", Effect.RESTART, "the driver begins anew with the checkpoints that are there"),
    ("checkpoint.log", Effect.RESTART, _STORED),
    ("checkpoint.state", Effect.RESTART, _STORED),
    ("checkpoint.stateMemory", Effect.RESTART, "a host has its memory from its beginning"),
    ("checkpoint.stateDisk", Effect.RESTART, "a host has its disk from its beginning"),
    ("checkpoint.eventual", Effect.RESTART, _STORED),
    ("checkpoint.eventual.extent", Effect.RESTART, _STORED),
    ("checkpoint.eventual.replay", Effect.RESTART, _STORED),
    ("checkpoint.eventual.spend", Effect.RESTART, _STORED),
    ("checkpoint.eventual.every", Effect.RESTART, _STORED),
    ("checkpoint.jitter", Effect.CHECKPOINT, _RHYTHM),
    ("checkpoint.interval", Effect.CHECKPOINT, _RHYTHM),
    ("checkpoint.everyBatches", Effect.CHECKPOINT, _RHYTHM),
    ("checkpoint.location", Effect.NEVER, "state would be left behind"),
    ("checkpoint.keep", Effect.CHECKPOINT, "older ones are removed when one is complete"),
    ("checkpoint.startFrom", Effect.RESTART, _FIRST_START),
    ("checkpoint.startFrom.location", Effect.RESTART, _FIRST_START),
    ("checkpoint.startFrom.savepoint", Effect.RESTART, _FIRST_START),
    ("checkpoint.startFrom.allowNew", Effect.RESTART, _FIRST_START),
    ("checkpoint.startFrom.allowGone", Effect.RESTART, _FIRST_START),
    ("checkpoint.standby", Effect.RESTART, _STORE),
    ("checkpoint.localCopies", Effect.RESTART, _STORE),
)
_RECOVERY_ROWS: _T = (
    ("recovery.strategy", Effect.CHECKPOINT, f"{_PLANS}; what is kept for it is kept from then on"),
    ("recovery.scope", Effect.CHECKPOINT, f"{_PLANS}; what is kept for it is kept from then on"),
    *(
        (f"recovery.{name}", Effect.AT_ONCE, _PLANS)
        for name in (
            "order",
            "correlatedNodes",
            "overcommit",
            "rebalance",
            "window",
            "cpuCap",
            "algorithm",
            "timeLimit",
        )
    ),
    ("recovery.mode", Effect.AT_ONCE, "the operator asks for approval, or does not"),
    ("recovery.bufferMemory", Effect.RESTART, "a host has its memory from its beginning"),
    ("recovery.bufferDisk", Effect.RESTART, "a host has its disk from its beginning"),
    ("recovery.driverGrace", Effect.RESTART, "executors are told when they start"),
)
_PROCESSES: _T = (
    ("batch.interval", Effect.RESTART, "a driver has the clock of the stream from its beginning"),
    ("batch.order", Effect.DRAIN, _CODE),
    ("sink.location", Effect.DRAIN, _ELSEWHERE),
    ("spark.executorMemory", Effect.RESTART, "executors are made from it"),
    ("spark.exchange", Effect.RESTART, "Spark is started with it"),
    ("spark.conf", Effect.RESTART, "Spark is started with it"),
    ("nodes.count", Effect.RESTART, "Spark is told at its start how many executors there are"),
    ("nodes.cpu", Effect.RESTART, "executors are made from it"),
    (
        "nodes.failureDomain",
        Effect.AT_ONCE,
        "the coordinator places with it; partitions stay, standbys may move",
    ),
    ("paused", Effect.AT_ONCE, "the coordinator says it to the driver"),
    ("upgrade", Effect.AT_ONCE, "it is asked for when a driver is started"),
)
_BY_POD: _T = tuple(
    (f"kubernetes{part}.{name}", effect, reason)
    for part in ("", ".driver", ".executor")
    for name, effect, reason in (
        ("labels", Effect.RESTART, _PODS),
        ("annotations", Effect.RESTART, _PODS),
        ("env", Effect.DRAIN, _VARIABLES),
        ("nodeSelector", Effect.RESTART, _PODS),
        ("tolerations", Effect.RESTART, _PODS),
    )
)
_KUBERNETES: _T = (
    *_BY_POD,
    ("kubernetes.image", Effect.DRAIN, _CODE),
    ("kubernetes.imagePullPolicy", Effect.RESTART, _PODS),
    ("kubernetes.imagePullSecrets", Effect.RESTART, _PODS),
    ("kubernetes.code", Effect.DRAIN, _CODE),
    ("kubernetes.code.configMap", Effect.RESTART, "the same files in another ConfigMap are the same code"),
    ("kubernetes.code.sha256", Effect.DRAIN, _CODE),
    ("kubernetes.serviceAccount", Effect.RESTART, _PODS),
    ("kubernetes.priorityClass", Effect.RESTART, _PODS),
    ("kubernetes.securityContext", Effect.RESTART, _PODS),
    ("kubernetes.secrets", Effect.RESTART, f"{_PODS}; their values are no part of the topology"),
    ("kubernetes.volumes", Effect.RESTART, _PODS),
    ("kubernetes.volumes[secret]", Effect.DRAIN, "code may read its files"),
    ("kubernetes.volumes[secret].readOnly", Effect.RESTART, _PODS),
    *(
        (f"kubernetes.{pod}.{name}", Effect.RESTART, _PODS)
        for pod, names in (
            ("driver", ("cpu", "memory", "storage", "affinity")),
            ("executor", ("memory", "storage", "spread", "affinity", "topologySpreadConstraints")),
        )
        for name in names
    ),
)
TABLE: tuple[Row, ...] = tuple(
    Row(*row)
    for row in (*_METADATA, *_GRAPH_ROWS, *_CHECKPOINT_ROWS, *_RECOVERY_ROWS, *_PROCESSES, *_KUBERNETES)
)
"""Every field, in the order of the resource's parts."""
_BY_PATH = {row.path: row for row in TABLE}


def row_of(path: str) -> Row:
    """The row that speaks for a field, by its path with `[]` for items.  KeyError: none does."""
    place = path
    while place not in _BY_PATH:
        cut = max(place.rfind("."), place.rfind("[") if place.endswith("]") else -1)
        if cut < 0:
            raise KeyError(path)
        place = place[:cut]
    return _BY_PATH[place]


def has_row(path: str) -> bool:
    """Whether there is a row for exactly this path."""
    return path in _BY_PATH
