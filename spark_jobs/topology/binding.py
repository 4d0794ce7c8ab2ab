"""Makes instances of user classes of the names in a resource, with errors that name the field.

User code runs here for the first time, at load, so that a class that does not import or refuses its `with` is
found before any node starts.  Invariant: an instance that could be built here is built the same way on every
executor, from the JSON text alone.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any, TypeVar

from reprise.spark_jobs.contract import FIRST_STATE_VERSION, Kind, Operator, Source
from reprise.spark_jobs.credentials import redacted
from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology.availability import as_if_forgetful, skip_fits
from reprise.spark_jobs.topology.class_path import current, public
from reprise.spark_jobs.topology.guarantees import (
    require_an_oldest_input,
    require_equal_replays,
    require_gaps_that_end,
    require_standbys_that_agree,
)
from reprise.spark_jobs.topology.resource import OperatorSpec, SourceSpec, StreamTopology
from reprise.spark_jobs.topology.scalars import closest, nearest

log = logging.getLogger("reprise.topology")

T = TypeVar("T", Operator, Source, Sink)


def make_operator(spec: OperatorSpec) -> Operator:
    """A new instance of the operator's class.  SpecError names the class or parameter that is wrong."""
    instance = _build(spec.class_path, spec.parameters, Operator, f"spec.operators[{spec.name}]")  # type: ignore[type-abstract]
    if not isinstance(instance.kind, Kind):
        reason = "its attribute `kind` must be a reprise.contract.Kind: what its output depends on"
        raise SpecError(f"spec.operators[{spec.name}].class", reason)
    said = instance.deterministic if spec.deterministic is None else spec.deterministic
    if (kind := instance.kind.declared(bool(said))) is not instance.kind:
        object.__setattr__(instance, "kind", kind)  # also of a frozen dataclass
    return instance


def is_deterministic(spec: OperatorSpec) -> bool:
    """Whether a replay of an operator gives the same rows, by what it says of itself.  One that cannot be made here is not
    known to: its partitions say why when they are installed."""
    try:
        return make_operator(spec).kind.deterministic
    except Exception as error:  # user code raises what it likes
        log.warning("event=operator-unknown operator=%s error=%r", spec.name, str(error))
        return False


def make_source(spec: SourceSpec) -> Source:
    """A new instance of the source's class.  SpecError names the class or parameter that is wrong."""
    return _build(spec.class_path, spec.parameters, Source, f"spec.sources[{spec.name}]")  # type: ignore[type-abstract]


def make_sink(spec: OperatorSpec) -> Sink | None:
    """A new instance of the output's sink class; None when output goes to files, or nowhere.  SpecError as above."""
    if spec.output is None or spec.output.sink is None:
        return None
    sink = spec.output.sink
    return _build(sink.class_path, sink.parameters, Sink, f"spec.operators[{spec.name}].output.sink")  # type: ignore[type-abstract]


def unbound(resource: StreamTopology) -> Iterator[SpecError]:
    """What is wrong with the classes that a resource names, with their parameters, and where their kinds do not allow what
    is asked for: each is built once and dropped."""
    operators, sinks, wrong = dict[str, Operator](), dict[str, Sink | None](), False

    def operator_of(spec: OperatorSpec) -> None:
        operators[spec.name] = make_operator(spec)

    def sink_of(spec: OperatorSpec) -> None:
        sinks[spec.name] = make_sink(spec)

    makers: list[Callable[[], object]] = [partial(make_source, source) for source in resource.sources]
    for operator in resource.operators:
        makers += [partial(operator_of, operator), partial(sink_of, operator)]
    for make in makers:
        try:
            make()
        except SpecError as error:
            wrong = True
            yield from error.all
    try:
        if not wrong:
            require_gaps_that_end(resource, operators, sinks)
            require_equal_replays(resource, operators)
            require_standbys_that_agree(resource, operators)
            require_an_oldest_input(resource, operators)
            _require_versions_that_are_kept(resource, operators)
    except SpecError as error:
        yield error


def _require_versions_that_are_kept(resource: StreamTopology, operators: Mapping[str, Operator]) -> None:
    """Slots are stored one by one, without the version of their state."""
    if not resource.checkpoint.eventual:
        return
    for name, operator in operators.items():
        if operator.state_version != FIRST_STATE_VERSION:
            raise SpecError(
                f"spec.operators[{name}].class",
                f"has `state_version` {operator.state_version}, which is not tried with `checkpoint.protocol: eventual`",
            )


def gaps_that_end(resource: StreamTopology) -> dict[str, Operator]:
    """An instance of each operator.  SpecError where batches would be skipped and it could not be said which outputs lack
    rows, or not be marked; and whatever user code raises."""
    operators = {o.name: make_operator(o) for o in resource.operators}
    require_gaps_that_end(resource, operators, {o.name: make_sink(o) for o in resource.operators})
    return operators


def able_to_skip(resource: StreamTopology, names: Set[str]) -> dict[str, Operator]:
    """An instance of each operator.  SpecError where partitions of these cannot begin anew at a person's word: whatever
    `availability: amnesia` of them would be refused for; and whatever user code raises."""
    raise_all(skip_fits(resource, names))
    return gaps_that_end(as_if_forgetful(resource, names))


def resolve(path: str) -> Any:
    """What `package.module:name` names.  ValueError says which part is missing, and why."""
    module_name, _, name = current(path).partition(":")
    if not name:
        raise ValueError(f"{path!r} must be written package.module:name")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user module raises while it is imported
        raise ValueError(
            f"module {module_name!r} does not import: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, name):
        close = nearest(name, [n for n in vars(module) if not n.startswith("_")])
        module_name, _, _ = public(path).partition(":")
        raise ValueError(f"module {module_name!r} has no {name!r}" + (close if "mean" in close else ""))
    return getattr(module, name)


def _build(class_path: str, parameters: Mapping[str, Any], base: type[T], field: str) -> T:
    try:
        cls = resolve(class_path)
    except ValueError as error:
        raise SpecError(f"{field}.class", str(error)) from error
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise SpecError(
            f"{field}.class",
            f"{class_path!r} is not a subclass of {public(f'{base.__module__}:{base.__name__}')}",
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise SpecError(f"{field}.class", f"{class_path!r} does not define {missing}")
    raise_all(_wrong_names(cls, parameters, f"{field}.with"))
    try:
        return cls(**copy.deepcopy(dict(parameters)))
    except SpecError as error:  # a library class names the parameter
        raise SpecError(f"{field}.with.{error.field}", redacted(error.reason)) from error
    except Exception as error:  # whatever a user constructor raises
        raise SpecError(
            f"{field}.with", f"{class_path!r} refuses it: {redacted(str(error)) or type(error).__name__}"
        ) from error


def _wrong_names(cls: type[Any], parameters: Mapping[str, Any], field: str) -> Iterator[SpecError]:
    signature = inspect.signature(cls).parameters
    accepted = {n for n, p in signature.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    mistyped = set()
    if not any(p.kind is p.VAR_KEYWORD for p in signature.values()):
        for name in parameters:
            if name not in accepted:
                mistyped.add(closest(name, sorted(accepted)))
                reason = f"unknown parameter of {cls.__name__}{nearest(name, sorted(accepted))}"
                yield SpecError(f"{field}.{name}", reason)
    for name in sorted(accepted - parameters.keys() - mistyped):
        if signature[name].default is inspect.Parameter.empty:
            yield SpecError(f"{field}.{name}", f"is required by {cls.__name__}")
