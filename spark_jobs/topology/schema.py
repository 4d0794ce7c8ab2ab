"""The wire form of a StreamTopology: closed pydantic models, one field after the other as YAML and the CRD
have them.

Why apart from `resource`: these classes describe what people may write (camelCase, quantities as strings,
defaults with their meaning, a JSON schema for the CRD); `resource` is what the rest of the program reads.
Nothing but `parse` builds one from the other.  Invariant: every model is closed; an unknown field is an error
that proposes the nearest known one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from reprise.spark_jobs.topology.choices import (
    BatchOrder,
    Format,
    OutputLog,
    Protocol,
    QueryOrder,
    Scope,
    StateForm,
    Strategy,
    Upgrade,
)
from reprise.spark_jobs.topology.kubernetes import KubernetesModel
from reprise.spark_jobs.topology.labels import AnnotationKey, LabelKey, LabelValue, within_annotations
from reprise.spark_jobs.topology.quantity import parse_duration
from reprise.spark_jobs.topology.scalars import (
    CLASS_PATTERN,
    NAME_PATTERN,
    Bytes,
    ClassPath,
    Closed,
    Cpu,
    Duration,
    Location,
    MaybeNoBytes,
    MaybeNoDuration,
    Name,
    ObjectName,
    Parallelism,
    Parameters,
    Priority,
    TopologyName,
    nearest,
)

__all__ = ["API_VERSION", "CLASS_PATTERN", "KIND", "NAME_PATTERN", "Closed", "json_schema", "nearest"]

API_VERSION = "reprise.dev/v1alpha1"
KIND = "StreamTopology"


class Resources(Closed):
    cpu: Cpu = "1m"
    """CPU of one partition in cores; plans use the greater of this and what is measured."""


class Batch(Closed):
    interval: Duration = "500ms"
    """Time between the release of one batch and the next."""
    order: BatchOrder = "aligned"
    """What a partition applies next. `aligned`: a batch, when the output of all its inputs for it is there. `arrival`: of
    each input what is there, so that rows do not wait for a slower input. Their order then differs from run to run: output
    is shown with the checkpoint that covers it, and everything goes back to the newest checkpoint when a partition is lost.
    In an incident of several nodes partitions apply aligned until it is over. With `checkpoint.protocol: coordinated`."""


class SourceModel(Closed):
    name: Name
    class_: ClassPath
    parallelism: Parallelism = 1
    with_: Parameters
    resources: Resources = Resources()
    """What one partition of this source needs."""


Column = Annotated[str, Field(min_length=1, max_length=256)]


class InputModel(Closed):
    from_: Annotated[Name, Field(alias="from", description="Name of the source or operator to subscribe to.")]
    by: Annotated[list[Column], Field(min_length=1, max_length=16)] | None = None
    """Key columns: rows go to the partition that owns the hash of these columns."""
    broadcast: bool = False
    """Every partition of this operator gets all rows."""
    forward: bool = False
    """Partition i reads partition i of the upstream operator; both need the same parallelism."""
    feedback: bool = False
    """This input closes a cycle: batch b of this operator reads batch b - 1 of the upstream operator."""

    @model_validator(mode="after")
    def _one_grouping(self) -> Self:
        if (self.by is not None) + self.broadcast + self.forward > 1:
            raise PydanticCustomError("grouping", "give only one of `by`, `broadcast` and `forward`")
        return self


class OutputSinkModel(Closed):
    class_: ClassPath
    with_: Parameters


class OutputRecoveryModel(Closed):
    objective: Duration
    """In how long a query of this operator is to be back after the loss of a node. Of all partitions that it needs those
    that are stored slot by slot store their slots so often that it can be; where several queries need one, the shortest
    counts. Needs `checkpoint.protocol: eventual`, and goes without `checkpoint.eventual.extent` and `replay`: these follow
    from it."""


class OutputModel(Closed):
    priority: Priority = 1
    """Importance of the queries of this operator's partitions, 1 (least) to 10."""
    priorities: dict[Annotated[str, Field(pattern=r"^[0-9]{1,4}$")], Priority] = Field(
        default_factory=dict, max_length=1024
    )
    """Priority of single partitions, by partition index, where it differs from `priority`."""
    format: Format = "jsonl"
    """File format of the sink output."""
    sink: OutputSinkModel | None = None
    """Where the output goes instead of files, e.g. `reprise.kafka:KafkaSink`."""
    recovery: OutputRecoveryModel | None = None
    """How fast its queries are to come back."""


class OperatorCheckpointModel(Closed):
    interval: Duration | None = None
    """Time between the snapshots of each partition of this operator, with another `checkpoint.protocol` than `coordinated`;
    that of the topology where it is not given."""


NodeLabel = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_./-]{0,251}[A-Za-z0-9])?$", max_length=253)
]


class StandbyModel(Closed):
    every: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None
    """Batches between two times that a passive standby is sent what has changed; 10 where it is not given. So many are made
    again at most, with those of one job, when it goes on in place of its partition."""
    failure_domain: NodeLabel | None = None
    """Label of nodes, such as `topology.kubernetes.io/zone`: a standby goes to a node on which it has another value than
    where its partition is, if there is room on one. On Kubernetes it is that of the Node object, else of `--label`. That of
    `nodes.failureDomain` where it is not given."""


class OperatorModel(Closed):
    name: Name
    class_: ClassPath
    parallelism: Parallelism = 1
    with_: Parameters
    resources: Resources = Resources()
    """What one partition of this operator needs."""
    deterministic: bool | None = None
    """Overrides what the class says of itself: false when the same input may give another output. The Kubernetes operator
    imports no code of a topology: there a class that is not of the library counts as false until this says true."""
    availability: Literal["checkpoint", "amnesia", "upstream-backup", "passive-standby", "active-standby"] = (
        "checkpoint"
    )
    """How a lost partition of this operator comes back. `checkpoint`: with its state, and each batch is made again.
    `amnesia`: with its initial state where the stream is now, if its readers are at work; batches in between lack its rows,
    and outputs mark them. `active-standby`: each partition has a second runtime on another node, which steps as it does,
    and goes on in its place at once; it costs as much CPU again. `passive-standby`: the state of each partition is copied to
    another node every few batches, and it goes on from there; that costs what the copying takes, and what an operator that
    is not deterministic gives waits until the copy has it. `upstream-backup`: with its initial state, at the oldest batch on
    which what it gives next depends, as those that it reads keep their output from there on; nothing is read from the
    checkpoint location."""
    standby: StandbyModel | None = None
    """With `active-standby` and `passive-standby`."""
    inputs: list[InputModel] = Field(min_length=1, max_length=32)
    """Upstream operators, in the order in which a batch's rows are applied."""
    checkpoint: OperatorCheckpointModel | None = None
    """When its partitions store themselves, where that differs from the others."""
    output: OutputModel | None = None
    """Makes this an output operator: each of its partitions is the output partition of one query."""


class EventualModel(Closed):
    extent: Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)] | None = None
    """Footprints of slots and closings that a recovery may have to read back (Q in Sebepou and Magoutis, section III-A):
    beyond that the slots that were stored longest ago are stored again. Below the number of open slots of a partition it
    cannot be met. 200000 where it is not given, unless it follows from `output.recovery.objective`."""
    replay: Annotated[int, Field(ge=1, le=1_000_000_000_000, strict=True)] | None = None
    """Rows that a recovery of one partition may have to replay (U there). 1000000 where it is not given, unless it follows
    from `output.recovery.objective`."""
    spend: Duration = "10ms"
    """The longest time for which slots are stored again (CI there),"""
    every: Duration = "250ms"
    """once in this time (CP there). Slots that open are always stored."""


class StartFromModel(Closed):
    location: Location
    """Checkpoint location of the topology that has taken the savepoint, or a mirror of it. It is only read."""
    savepoint: ObjectName
    """Its name, as `reprise savepoint` was given it."""
    allow_new: Annotated[list[Name], Field(max_length=200)] = Field(default_factory=list)
    """Sources and operators that the savepoint does not have: operators begin with their initial state, sources at their own
    beginning. One that is not named here is refused."""
    allow_gone: Annotated[list[Name], Field(max_length=200)] = Field(default_factory=list)
    """Sources and operators that the savepoint has and this topology has not: what they knew is left behind. One that is not
    named here is refused."""


class CheckpointModel(Closed):
    protocol: Protocol = "coordinated"
    """Who decides when a partition stores its state. `coordinated`: all partitions do after the same batch. `uncoordinated`:
    each by its own clock, and it goes back alone when it is lost; needs a `log`. `communication-induced`: the same, and
    messages that would make a snapshot useless force one before they are applied; needs `log: checkpointed`. `eventual`: as
    `uncoordinated`, and operators with slots (keys, windows) store those that opened, closed or were not stored for long;
    needs `log: checkpointed`."""
    log: OutputLog = "none"
    """What keeps the output that receivers have not stored yet, with another `protocol` than `coordinated`. `memory`: the
    sender, in `recovery.bufferMemory` and on its disk. `checkpointed`: its snapshots hold that output, too."""
    state: StateForm = "arrays"
    """How states are frozen and stored. `arrays`: whole. `paged`: of a snapshot only the pages that changed since the one
    before; for operators of the library that keep state by key, window or joined row, others are stored whole."""
    eventual: EventualModel | None = None
    """How often slots are stored again, with `protocol: eventual`."""
    jitter: Annotated[int, Field(ge=0, le=90, strict=True)] = 20
    """Percentage of the interval by which the time between two snapshots of one partition varies, with another `protocol`
    than `coordinated`, so that not all partitions store at once."""
    interval: Duration | None = None
    """Time between global checkpoints, or between the snapshots of one partition; 10s when `everyBatches` is not given
    either."""
    every_batches: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None
    """Batches between global checkpoints, or between the snapshots of one partition, instead of `interval`."""
    location: Location | None = None
    """Directory or URL of the checkpoint store, which every node must reach; immutable once the topology has
    started. By default a directory of the run; needed on Kubernetes, where pods share no directory."""
    keep: Annotated[int, Field(ge=1, le=100, strict=True)] = 3
    """Number of complete global checkpoints to keep; with another `protocol` than `coordinated`, of lines of snapshots."""
    standby: Annotated[list[Location], Field(max_length=8)] = Field(default_factory=list)
    """Mirrors of the location, in the order in which they are read where it cannot be, or holds damaged files.
    Nothing is written to them."""
    start_from: StartFromModel | None = None
    """A savepoint of another topology, from which this one begins: with the states of its operators and the positions of its
    sources. It is copied once, when the topology starts for the first time, into its own location, which must be another
    one; what becomes of the savepoint later does not matter. Needs `protocol: coordinated`."""
    local_copies: MaybeNoBytes = "2Gi"
    """Disk of one node for copies of the newest states that it has stored: a partition that goes back there reads its state
    from them. 0 keeps none; never more than `kubernetes.executor.storage` leaves, where it is given."""
    state_memory: Bytes | None = None
    """Memory of one node for what is kept in pages. When its partitions have more, what is hardly used of it is on the
    node's disk. Needs `state: paged`. Absent: all of it is in memory."""
    state_disk: Bytes | None = None
    """Disk of one node for states that exceed `stateMemory`; 8Gi when it is not given."""

    @model_validator(mode="after")
    def _one_rhythm(self) -> Self:
        if self.interval is not None and self.every_batches is not None:
            raise PydanticCustomError("rhythm", "give only one of `interval` and `everyBatches`")
        return self


class SinkModel(Closed):
    location: Location | None = None
    """Directory or URL below which sink files are written, which every node must reach; needed on Kubernetes. Not used by
    `reprise run`, which writes below its output folder."""


class RecoveryModel(Closed):
    strategy: Strategy = "incremental"
    """How a correlated failure is recovered."""
    order: QueryOrder = "value"
    """Which queries come back first. `value`: those that together have the most priority for the capacity that is there, so
    several of lesser priority may come before a great one. `strict`: the most valuable first, whatever it costs; what is
    free is kept for it."""
    scope: Scope = "auto"
    """What goes back to the newest checkpoint with what was lost. `auto`: nothing that lives, as long as outputs since
    that checkpoint fit `bufferMemory`; else as `ancestors`. `ancestors`: operators that the lost ones read, directly or not,
    which make their output again. `global`: everything. Strategies `operator-centric` and `blocking`, and topologies with an
    operator that is not deterministic, take everything back; with passive standbys of all such operators those topologies do
    so only where one of these is lost that cannot go on at its standby, or would have to begin anew, or to give again
    what it no longer keeps. `partition`: nothing, but who has no longer what the lost ones need; it needs another
    `checkpoint.protocol` than `coordinated`, with which `auto` means the same, and `ancestors` nothing."""
    mode: Literal["automatic", "recommend"] = "automatic"
    """`recommend` writes plans down and carries none out until it is approved (Kubernetes). Not used by `reprise run`,
    which always acts."""
    correlated_nodes: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 2
    """Nodes lost since the last global checkpoint from which a failure counts as correlated (X in Su and Zhou, section
    4.2.1)."""
    window: Duration | None = None
    """Losses longer ago than this are not counted. Absent: all since the last global checkpoint count, as in the paper."""
    cpu_cap: Annotated[int, Field(ge=1, le=100, strict=True)] = 80
    """Percentage of a node's CPU that plans may fill."""
    overcommit: Annotated[int, Field(ge=101, le=400, strict=True)] | None = None
    """Percentage of a node's CPU that plans of an incident may fill where a query would wait otherwise. With 150 what runs
    on such a node takes up to 1.5 times as long as it should, and falls behind until nodes come. Plans, `reprise status` and
    the page say how much slower it is. Absent: plans keep to `cpuCap`. Needs `rebalance: true`."""
    rebalance: bool = False
    """Whether load is levelled by planned moves after an incident, and when nodes come: few partitions go from full nodes to
    empty ones, one at a time, the least valuable first, and nothing goes back. A query stands still while a partition of it
    moves. Not where an operator is not deterministic."""
    algorithm: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)] = "auto"
    """Planner, by its registered name: auto, best-density, ilp, ..."""
    time_limit: Duration = "1s"
    """Longest time that one plan may take."""
    buffer_memory: Bytes = "64Mi"
    """Memory of one node for buffered output. During an incident what exceeds it spills to disk; in normal running, with
    scope `auto`, what was kept for a failure is dropped first."""
    buffer_disk: MaybeNoBytes = "4Gi"
    """Disk of one node for spilled buffers."""
    driver_grace: MaybeNoDuration = "0s"
    """For how long partitions keep their state without a driver. A driver that begins within this time goes on with those
    that are there; only what is gone is restored. `0s`: the end of a driver ends all state, and everything is restored
    from the newest checkpoint. Not used on Kubernetes, where executors end with their driver."""

    @model_serializer(mode="wrap")
    def _without_later_fields(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Left out of the document where they ask for nothing: a driver of before there were such fields refuses them."""
        later = set() if parse_duration(self.driver_grace) else {"driverGrace", "driver_grace"}
        later |= set() if self.rebalance else {"rebalance"}
        later |= set() if self.overcommit else {"overcommit"}
        return {name: value for name, value in written(self).items() if name not in later}


class SparkModel(Closed):
    executor_memory: Bytes = "512Mi"
    """Memory of one executor's JVM; Spark refuses less than 450Mi."""
    exchange: Literal["auto", "chained"] = "auto"
    """How messages travel between nodes. `auto`: all the time, by one long job over Spark's pipelined shuffle, so that a
    slow node holds up only its own readers; as `chained` where a probe at the start fails. `chained`: with the stages of
    jobs, each of which waits for the slowest node."""
    conf: dict[str, Annotated[str, Field(max_length=4096)]] = Field(default_factory=dict, max_length=128)
    """Further Spark properties."""


class NodesModel(Closed):
    count: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 2
    """Nodes to start with."""
    cpu: Cpu = "1"
    """CPU of one node, in cores."""
    failure_domain: NodeLabel | None = None
    """Label of nodes, such as `topology.kubernetes.io/zone`: those with the same value may be lost together. At the first
    start, and in plans, the partitions of a query are placed together in as few domains as the load allows, so that the loss
    of one domain takes fewer queries. On Kubernetes it is that of the Node object, which needs `rbac.readNodes`, else of
    `--label`."""


class SpecModel(Closed):
    batch: Batch = Batch()
    """How the input is cut into batches."""
    sources: list[SourceModel] = Field(min_length=1, max_length=32)
    """Where data comes in."""
    operators: list[OperatorModel] = Field(min_length=1, max_length=200)
    """Everything downstream of the sources."""
    checkpoint: CheckpointModel = CheckpointModel()
    """When global checkpoints are taken and where they are kept."""
    sink: SinkModel = SinkModel()
    """Where output goes."""
    recovery: RecoveryModel = RecoveryModel()
    """How failures are recovered."""
    spark: SparkModel = SparkModel()
    """Settings of the Spark application."""
    nodes: NodesModel = NodesModel()
    """The nodes that the topology runs on: executors, of which several may be on one machine."""
    kubernetes: KubernetesModel = KubernetesModel()
    """How its pods look. Not used by `reprise run`."""
    paused: bool = False
    """Stops releasing batches; state is kept."""
    upgrade: Upgrade = "drain"
    """How a change of code, parameters, output or image takes effect: `drain` at a checkpoint after which nothing was
    released; `replay` at once, and batches since the newest checkpoint are made again by the new code."""


class MetadataModel(Closed):
    name: TopologyName
    namespace: Name = "default"
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels, as Kubernetes has them."""
    annotations: Annotated[dict[AnnotationKey, str], AfterValidator(within_annotations)] = Field(
        default_factory=dict
    )
    """Annotations, as Kubernetes has them; not used."""


class StreamTopologyModel(Closed):
    api_version: Literal["reprise.dev/v1alpha1"]
    """Version of this schema."""
    kind: Literal["StreamTopology"]
    """Kind of the resource."""
    metadata: MetadataModel
    """Name and labels."""
    spec: SpecModel
    """What is wanted."""


def json_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the whole resource, with descriptions and defaults; definitions under
    `$defs`."""
    return StreamTopologyModel.model_json_schema(by_alias=True)
