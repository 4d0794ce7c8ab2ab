"""The wire form of a StreamTopology: closed pydantic models, one field after the other as YAML and the CRD
have them.

Why apart from `resource`: these classes describe what people may write (camelCase, quantities as strings,
defaults with their meaning, a JSON schema for the CRD); `resource` is what the rest of the program reads.
Nothing but `parse` builds one from the other.  Invariant: every model is closed; an unknown field is an error
that proposes the nearest known one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from spark_jobs.topology.quantity import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    parse_bytes,
    parse_cpu,
    parse_duration,
)

API_VERSION = "reprise.dev/v1alpha1"
KIND = "StreamTopology"
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
CLASS_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"


def nearest(word: str, known: list[str]) -> str:
    """`; did you mean 'x'?` for the closest of `known`, or the list of them when none is close."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(sorted(known))}" if known else ""


def _text(parse: Callable[[str], float], minimum: float) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        if not isinstance(text, str):
            raise ValueError(f"expected a string, found {type(value).__name__}")
        if parse(text) <= minimum:
            raise ValueError(f"{text!r} must be more than {minimum:g}")
        return text

    return check


_DURATION_SCHEMA = {"type": "string", "pattern": DURATION_PATTERN}
_QUANTITY_SCHEMA = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": QUANTITY_PATTERN,
    "x-kubernetes-int-or-string": True,
}
Duration = Annotated[str, BeforeValidator(_text(parse_duration, 0)), WithJsonSchema(_DURATION_SCHEMA)]
Cpu = Annotated[str, BeforeValidator(_text(parse_cpu, 0)), WithJsonSchema(_QUANTITY_SCHEMA)]
Bytes = Annotated[str, BeforeValidator(_text(parse_bytes, 0)), WithJsonSchema(_QUANTITY_SCHEMA)]
MaybeNoBytes = Annotated[str, BeforeValidator(_text(parse_bytes, -1)), WithJsonSchema(_QUANTITY_SCHEMA)]

Name = Annotated[
    str,
    Field(
        pattern=NAME_PATTERN,
        max_length=63,
        description="A DNS label: lower case letters, digits and inner hyphens.",
    ),
]
Priority = Annotated[int, Field(ge=1, le=10, strict=True)]
Parallelism = Annotated[
    int, Field(ge=1, le=1024, strict=True, description="Number of partitions (key groups) of this operator.")
]
ClassPath = Annotated[
    str,
    Field(alias="class", pattern=CLASS_PATTERN, description="Python class, written `package.module:Class`."),
]
Parameters = Annotated[
    dict[str, Any],
    Field(
        alias="with",
        default_factory=dict,
        description="Keyword arguments of the class's constructor.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    ),
]


class Closed(BaseModel):
    """Base of all wire models: camelCase names only, nothing unknown."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, value: Any) -> Any:
        if isinstance(value, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in value:
                if key not in known:
                    reason = f"unknown field {key!r}{nearest(str(key), known)}"
                    raise PydanticCustomError(
                        "unknown_field", "{reason}", {"reason": reason, "field": str(key)}
                    )
        return value


class Resources(Closed):
    cpu: Cpu = "1m"
    """CPU of one partition in cores; plans use the greater of this and what is measured."""


class Batch(Closed):
    interval: Duration = "500ms"
    """Time between the release of one batch and the next."""


class SourceModel(Closed):
    name: Name
    class_: ClassPath
    parallelism: Parallelism = 1
    with_: Parameters
    resources: Resources = Resources()
    """What one partition of this source needs."""


class InputModel(Closed):
    from_: Annotated[Name, Field(alias="from", description="Name of the source or operator to subscribe to.")]
    by: Annotated[list[str], Field(min_length=1)] | None = None
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


class OutputModel(Closed):
    priority: Priority = 1
    """Importance of the queries of this operator's partitions, 1 (least) to 10."""
    priorities: dict[Annotated[str, Field(pattern=r"^[0-9]+$")], Priority] = Field(default_factory=dict)
    """Priority of single partitions, by partition index, where it differs from `priority`."""
    format: Literal["jsonl", "parquet"] = "jsonl"
    """File format of the sink output."""


class OperatorModel(Closed):
    name: Name
    class_: ClassPath
    parallelism: Parallelism = 1
    with_: Parameters
    resources: Resources = Resources()
    """What one partition of this operator needs."""
    deterministic: bool | None = None
    """Overrides what the class says of itself: false when the same input may give another output."""
    inputs: list[InputModel] = Field(min_length=1)
    """Upstream operators, in the order in which a batch's rows are applied."""
    output: OutputModel | None = None
    """Makes this an output operator: each of its partitions is the output partition of one query."""


class CheckpointModel(Closed):
    interval: Duration | None = None
    """Time between global checkpoints; 10s when `everyBatches` is not given either."""
    every_batches: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Batches between global checkpoints, instead of `interval`."""
    location: str | None = None
    """Directory or URL of the checkpoint store; by default a directory of the run."""
    keep: Annotated[int, Field(ge=1, le=100, strict=True)] = 3
    """Number of complete global checkpoints to keep."""

    @model_validator(mode="after")
    def _one_rhythm(self) -> Self:
        if self.interval is not None and self.every_batches is not None:
            raise PydanticCustomError("rhythm", "give only one of `interval` and `everyBatches`")
        return self


class RecoveryModel(Closed):
    strategy: Literal["incremental", "blocking", "operator-centric", "best-case"] = "incremental"
    """How a correlated failure is recovered."""
    correlated_nodes: Annotated[int, Field(ge=1, strict=True)] = 2
    """Nodes lost since the last global checkpoint from which a failure counts as correlated (X of seed
    003)."""
    window: Duration = "120s"
    """Losses further apart than this are not counted together."""
    cpu_cap: Annotated[int, Field(ge=1, le=100, strict=True)] = 80
    """Percentage of a node's CPU that plans may fill."""
    algorithm: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)] = "auto"
    """Planner, by its registered name: auto, best-density, ilp, ..."""
    time_limit: Duration = "1s"
    """Longest time that one plan may take."""
    buffer_memory: Bytes = "64Mi"
    """Memory of one node for buffered output during an incident; what exceeds it spills to disk."""
    buffer_disk: MaybeNoBytes = "4Gi"
    """Disk of one node for spilled buffers."""


class SparkModel(Closed):
    executor_memory: Bytes = "512Mi"
    """Memory of one executor's JVM; Spark refuses less than 450Mi."""
    conf: dict[str, str] = Field(default_factory=dict)
    """Further Spark properties."""


class NodesModel(Closed):
    count: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 2
    """Nodes to start with."""
    cpu: Cpu = "1"
    """CPU of one node, in cores."""


class SpecModel(Closed):
    batch: Batch = Batch()
    """How the input is cut into batches."""
    sources: list[SourceModel] = Field(min_length=1)
    """Where data comes in."""
    operators: list[OperatorModel] = Field(min_length=1)
    """Everything downstream of the sources."""
    checkpoint: CheckpointModel = CheckpointModel()
    """When global checkpoints are taken and where they are kept."""
    recovery: RecoveryModel = RecoveryModel()
    """How failures are recovered."""
    spark: SparkModel = SparkModel()
    """Settings of the Spark application."""
    nodes: NodesModel = NodesModel()
    """The machines that the topology runs on."""
    paused: bool = False
    """Stops releasing batches; state is kept."""


class MetadataModel(Closed):
    name: Name
    namespace: Name = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, as Kubernetes has them."""
    annotations: dict[str, str] = Field(default_factory=dict)
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
