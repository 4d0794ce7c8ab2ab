"""Makes the frozen resource of its wire form, and back: the one place where both are known.

Everything that pydantic finds wrong becomes a `SpecError`; its field is the path as people write it
(`spec.operators[by-carrier].inputs[0].from`), items named where they have a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from reprise.spark_jobs.credentials import places
from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.topology import resource as r
from reprise.spark_jobs.topology import schema as s
from reprise.spark_jobs.topology.class_path import of_library
from reprise.spark_jobs.topology.pod_settings import kubernetes_settings, other_disk, state_disk
from reprise.spark_jobs.topology.quantity import parse_bytes, parse_cpu, parse_duration

STEP = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")
"""One step of a path: `[name or number]`, or a field."""
MOST_UNKNOWN = 20
"""Unknown fields of one mapping that are reported at once."""
_SERVER_METADATA = re.compile(
    r"uid|resourceVersion|generation|creationTimestamp|deletionTimestamp|deletionGracePeriodSeconds|managedFields"
    r"|finalizers|ownerReferences|selfLink|generateName"
)


def from_object(obj: Any) -> r.StreamTopology:
    """A resource from parsed YAML or JSON, or from the API server (whose own metadata and status are left
    aside).

    Checks shape only; `check.check` and `binding` look at what it means.  SpecError: everything that is wrong.
    """
    if not isinstance(obj, dict):
        raise SpecError(
            "(document)",
            f"expected a mapping with apiVersion, kind, metadata and spec, found {_kind_of(obj)}",
        )
    document = _without_server_fields(obj)
    try:
        model = s.StreamTopologyModel.model_validate(document)
    except ValidationError as error:
        raise_all(wrong_shape(error, document))
        raise
    raise_all(_passwords(model.spec))
    return _resource(model)


def _passwords(spec: s.SpecModel) -> Iterator[SpecError]:
    """Classes of this library have no parameter that is a password; what those of others take is theirs to know."""
    parts = [(f"sources[{x.name}]", x.class_, x.with_) for x in spec.sources]
    parts += [(f"operators[{x.name}]", x.class_, x.with_) for x in spec.operators]
    parts += [
        (f"operators[{x.name}].output.sink", x.output.sink.class_, x.output.sink.with_)
        for x in spec.operators
        if x.output is not None and x.output.sink is not None
    ]
    for path, class_path, parameters in parts:
        if of_library(class_path) and (place := next(places(parameters), None)) is not None:
            yield SpecError(
                f"spec.{path}.with{place}",
                "holds a URL with a password or token, which everybody would see who sees the topology: give it to the "
                "client as a variable or a reference, e.g. {env: NAME} in `config` of a Kafka class",
            )


def to_json(resource: r.StreamTopology) -> str:
    """The resource as canonical JSON text (its wire form)."""
    return resource.document


def from_json(text: str) -> r.StreamTopology:
    """The inverse of `to_json`; SpecError for text that is not such a resource."""
    try:
        obj = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError("(document)", f"not JSON: {error}") from None
    return from_object(obj)


def override(resource: r.StreamTopology, changes: Mapping[str, Any]) -> r.StreamTopology:
    """A copy with other values at paths of the spec, e.g. `recovery.strategy` or `sources[tweets].with.rate`.

    None removes a field, so that its default holds.  SpecError for a path to an item that is not there, and
    when the result is not a valid resource.
    """
    document = json.loads(resource.document)
    for path, value in changes.items():
        *parents, last = STEP.findall(path)
        target = document["spec"]
        for item, key in parents:
            target = _named(target, item, path) if item else target.setdefault(key, {})
        if not last[1]:
            raise SpecError(f"spec.{path}", "a whole item cannot be replaced; name a field of it")
        if value is None:
            target.pop(last[1], None)
        else:
            target[last[1]] = value
    return from_object(document)


def _named(items: Any, name: str, path: str) -> Any:
    for item in items if isinstance(items, list) else []:
        if item.get("name") == name:
            return item
    raise SpecError(f"spec.{path}", f"there is no item {name!r}")


def _without_server_fields(obj: dict[str, Any]) -> dict[str, Any]:
    obj = {key: value for key, value in obj.items() if key != "status"}
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        wanted = ((k, v) for k, v in metadata.items() if not _SERVER_METADATA.fullmatch(str(k)))
        obj["metadata"] = {
            k: v for k, v in wanted if v is not None
        }  # as the API server takes `labels:` alone
    return obj


def _kind_of(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def wrong_shape(error: ValidationError, obj: dict[str, Any]) -> list[SpecError]:
    """Everything that pydantic finds wrong with a document.

    A field that is not known hides what else is wrong with its mapping, so documents without such fields are looked at
    again.  A required field that is missing because its name was mistyped is the same mistake, and is said once.
    """
    found: list[SpecError] = []
    mistyped: set[tuple[Any, ...]] = set()
    known = obj
    for _ in range(MOST_UNKNOWN):
        problems = error.errors(include_url=False)
        unknown = [p for p in problems if p["type"] == "unknown_field"]
        for problem in unknown:
            place, field = problem["loc"], problem["ctx"]["field"]
            found.append(SpecError(path_text([*place, field], obj), str(problem["ctx"]["reason"])))
            mistyped.add((*place, problem["ctx"]["meant"]))
            known = _without(known, place, field)
        try:
            if not unknown:
                break
            s.StreamTopologyModel.model_validate(known)
            return found
        except ValidationError as more:
            error = more
    for problem in error.errors(include_url=False):
        kind, place = problem["type"], problem["loc"]
        if kind != "unknown_field" and not (kind == "missing" and place in mistyped):
            found.append(SpecError(path_text(place, obj), _reason(problem)))
    return found


def _without(value: Any, place: Sequence[str | int], field: str) -> Any:
    """A copy of nested mappings and lists without one field of the mapping at `place`."""
    if not place:
        return {key: item for key, item in value.items() if str(key) != field}
    step, *rest = place
    if isinstance(step, int):
        return [_without(item, rest, field) if i == step else item for i, item in enumerate(value)]
    return {key: _without(item, rest, field) if key == step else item for key, item in value.items()}


def _reason(problem: Any) -> str:
    context, found, text = problem.get("ctx", {}), problem["input"], str(problem["msg"])
    match problem["type"], context.get("pattern"):
        case "missing", _:
            text = "is required"
        case "string_pattern_mismatch", s.NAME_PATTERN:
            text = f"{found!r} is not a DNS label: use lower case letters, digits and inner hyphens"
        case "string_pattern_mismatch", s.CLASS_PATTERN:
            text = f"{found!r} is not a class: write package.module:Class"
        case "value_error", _:
            text = str(context["error"])
        case ("model_type" | "dict_type" | "list_type") as expected, _:
            text = f"expected a {'list' if expected == 'list_type' else 'mapping'}, found {_kind_of(found)}"
        case _ if not isinstance(found, dict | list):
            text = f"{text}, found {found!r}"
    return text


def path_text(path: Sequence[str | int], obj: Any) -> str:
    """A path as people write it; list items that have a `name` are called by it."""
    text = ""
    for step in path:
        item = _get(obj, step)
        if isinstance(step, int):
            name = item.get("name") if isinstance(item, dict) else None
            unique = (
                isinstance(name, str) and sum(isinstance(o, dict) and o.get("name") == name for o in obj) == 1
            )
            text += (
                f"[{name}]"
                if unique and isinstance(name, str) and re.match(s.NAME_PATTERN, name)
                else f"[{step}]"
            )
        elif step != "[key]":
            text += f".{step}" if text else str(step)
        obj = item
    return text


def _get(obj: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return obj[step] if isinstance(obj, list) and step < len(obj) else None
    return obj.get(step) if isinstance(obj, dict) else None


def _resource(model: s.StreamTopologyModel) -> r.StreamTopology:
    spec, meta = model.spec, model.metadata
    return r.StreamTopology(
        name=meta.name,
        namespace=meta.namespace,
        labels=dict(meta.labels),
        batch_interval_s=parse_duration(spec.batch.interval),
        batch_order=spec.batch.order,
        sources=tuple(_source(x) for x in spec.sources),
        operators=tuple(_operator(x) for x in spec.operators),
        checkpoint=_checkpoint(spec),
        recovery=_recovery(spec.recovery),
        spark=r.SparkSettings(
            parse_bytes(spec.spark.executor_memory), dict(spec.spark.conf), spec.spark.exchange
        ),
        nodes=r.NodeSettings(spec.nodes.count, parse_cpu(spec.nodes.cpu), spec.nodes.failure_domain),
        paused=spec.paused,
        upgrade=spec.upgrade,
        sink_location=spec.sink.location,
        kubernetes=kubernetes_settings(spec),
        document=json.dumps(model.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=True),
    )


def _source(x: s.SourceModel) -> r.SourceSpec:
    return r.SourceSpec(x.name, x.class_, x.parallelism, x.with_, parse_cpu(x.resources.cpu))


def _operator(x: s.OperatorModel) -> r.OperatorSpec:
    inputs = tuple(r.InputSpec(i.from_, _grouping(i), i.feedback) for i in x.inputs)
    output = None
    if x.output is not None:
        priorities = {int(index): priority for index, priority in x.output.priorities.items()}
        sink = None if x.output.sink is None else r.SinkSpec(x.output.sink.class_, x.output.sink.with_)
        recovery = x.output.recovery
        objective_s = None if recovery is None else parse_duration(recovery.objective)
        output = r.OutputSpec(x.output.priority, priorities, x.output.format, sink, objective_s)
    cpu = parse_cpu(x.resources.cpu)
    own = None if x.checkpoint is None else x.checkpoint.interval
    return r.OperatorSpec(
        x.name,
        x.class_,
        x.parallelism,
        x.with_,
        cpu,
        x.deterministic,
        inputs,
        output,
        None if own is None else parse_duration(own),
        x.availability,
        None if x.standby is None else r.StandbySpec(x.standby.every, x.standby.failure_domain),
    )


def _grouping(x: s.InputModel) -> r.Grouping:
    if x.by is not None:
        return r.Grouping(r.Mode.KEYS, tuple(x.by))
    if x.broadcast:
        return r.Grouping(r.Mode.BROADCAST)
    return r.Grouping(r.Mode.FORWARD if x.forward else r.Mode.SINGLE)


def _checkpoint(spec: s.SpecModel) -> r.CheckpointPolicy:
    x, storage = spec.checkpoint, spec.kubernetes.executor.storage
    eventual = x.eventual or (s.EventualModel() if x.protocol == "eventual" else None)
    interval = x.interval if x.every_batches is not None or x.interval is not None else "10s"
    return r.CheckpointPolicy(
        interval_s=None if interval is None else parse_duration(interval),
        every_batches=x.every_batches,
        location=x.location,
        keep=x.keep,
        standby=tuple(x.standby),
        local_copies_bytes=min(
            parse_bytes(x.local_copies),
            2**63 if storage is None else max(0, parse_bytes(storage) - other_disk(spec)),
        ),
        state_memory_bytes=0 if x.state_memory is None else parse_bytes(x.state_memory),
        state_disk_bytes=state_disk(spec),
        protocol=x.protocol,
        log=x.log,
        jitter=x.jitter / 100,
        state=x.state,
        eventual_pace=None
        if eventual is None
        else r.EventualPace(
            r.EXTENT if eventual.extent is None else eventual.extent,
            r.REPLAY if eventual.replay is None else eventual.replay,
            parse_duration(eventual.spend),
            parse_duration(eventual.every),
            tuple(name for name in ("extent", "replay") if getattr(eventual, name) is not None),
        ),
        start_from=_start_from(x.start_from),
    )


def _start_from(x: s.StartFromModel | None) -> r.StartFrom | None:
    return (
        None if x is None else r.StartFrom(x.location, x.savepoint, tuple(x.allow_new), tuple(x.allow_gone))
    )


def _recovery(x: s.RecoveryModel) -> r.RecoveryPolicy:
    return r.RecoveryPolicy(
        strategy=x.strategy,
        recommend_only=x.mode == "recommend",
        scope=x.scope,
        correlated_nodes=x.correlated_nodes,
        window_s=None if x.window is None else parse_duration(x.window),
        cpu_cap=x.cpu_cap / 100,
        order=x.order,
        algorithm=x.algorithm,
        time_limit_s=parse_duration(x.time_limit),
        buffer_memory_bytes=parse_bytes(x.buffer_memory),
        buffer_disk_bytes=parse_bytes(x.buffer_disk),
        driver_grace_s=parse_duration(x.driver_grace),
        overcommit=(x.overcommit or 0) / 100,
        rebalance=x.rebalance,
    )
