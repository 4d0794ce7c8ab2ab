"""What else is wrong with a resource whose shape is wrong: names that are not there, classes, and their parameters.

Nothing of the resource can be built then, so this looks at the document.  It says only what holds whatever is meant by what
is wrong already: an input is missing where all names can be read, and a class is built where it and its parameters can be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import schema as s
from reprise.spark_jobs.topology.binding import make_operator, make_sink, make_source
from reprise.spark_jobs.topology.check import no_such_input
from reprise.spark_jobs.topology.resource import OperatorSpec, OutputSpec, SinkSpec, SourceSpec

_CLASS_FIELDS = {"class", "with"}


def beside_its_shape(document: Any, wrong: Iterable[SpecError]) -> Iterator[SpecError]:
    """The mistakes that can be told beside `wrong`, those of the document's shape."""
    spec = _mapping(_mapping(document).get("spec"))
    items = [(kind, item) for kind in ("sources", "operators") for item in _mappings(spec.get(kind))]
    names = [item.get("name") for _, item in items]
    # the one that cannot be read may be the one that is meant
    if not all(isinstance(name, str) for name in names):
        return
    fields = {error.field for error in wrong}
    for kind, item in items:
        name = str(item["name"])
        if names.count(name) > 1 or not re.match(s.NAME_PATTERN, name):
            continue  # it could not be said which one is meant
        place = f"spec.{kind}[{name}]"
        for index, spec_of_input in enumerate(_mappings(item.get("inputs"))):
            origin = spec_of_input.get("from")
            if isinstance(origin, str) and origin not in names:
                yield SpecError(
                    f"{place}.inputs[{index}].from", no_such_input(origin, [str(n) for n in names])
                )
        yield from _classes(kind, name, item, place, fields)


def _classes(
    kind: str, name: str, item: Mapping[str, Any], place: str, wrong: set[str]
) -> Iterator[SpecError]:
    """What building the item's class, and that of its sink, says."""
    if _can_be_built(item, s.SourceModel if kind == "sources" else s.OperatorModel, place, wrong):
        path, parameters = item["class"], item.get("with") or {}
        if kind == "sources":
            yield from _said(lambda: make_source(SourceSpec(name, path, 1, parameters, 0.0)))
        else:
            spec = OperatorSpec(name, path, 1, parameters, 0.0, None, (), None)
            yield from _said(lambda: make_operator(spec))
    sink = _mapping(_mapping(item.get("output")).get("sink"))
    if _can_be_built(sink, s.OutputSinkModel, f"{place}.output.sink", wrong):
        output = OutputSpec(1, {}, "jsonl", SinkSpec(sink["class"], sink.get("with") or {}))
        of_sink = OperatorSpec(name, "", 1, {}, 0.0, None, (), output)
        yield from _said(lambda: make_sink(of_sink))


def _can_be_built(item: Mapping[str, Any], model: type[s.Closed], place: str, wrong: set[str]) -> bool:
    """Whether its class and parameters are as they are meant."""
    known = {field.alias or name for name, field in model.model_fields.items()}
    if not isinstance(item.get("class"), str) or not isinstance(item.get("with", {}), Mapping):
        return False
    if "with" not in item and not set(item) <= known:  # a field that is not known may be the parameters
        return False
    return not any(field.startswith(f"{place}.{part}") for field in wrong for part in _CLASS_FIELDS)


def _said(make: Callable[[], object]) -> Iterator[SpecError]:
    try:
        make()
    except SpecError as error:
        yield from error.all


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [_mapping(item) for item in value] if isinstance(value, list) else []
