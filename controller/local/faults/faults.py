"""Fault schedules: what breaks in a run, and when; read from YAML by a total parser.

A schedule must mean the same in every run, so nothing in it is random and a fault is tied to what the run itself
reaches: a time since the stream began, a batch, another fault, or a step of a recovery.  Invariant: every file gives
either a schedule or a FaultFileError with all of its mistakes, each with file, index, field and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml

from reprise.controller.local.errors import FaultFileError
from reprise.controller.local.faults.traces import read_trace
from reprise.controller.status.actions import FaultAction
from reprise.spark_jobs.topology import Topology
from reprise.spark_jobs.topology.quantity import parse_duration
from reprise.spark_jobs.topology.schema import nearest

W = TypeVar("W", bound=str)
P = TypeVar("P")
TriggerKind = Literal["at", "batch", "after", "on"]
TRIGGERS: tuple[TriggerKind, ...] = get_args(TriggerKind)
ACTIONS: tuple[FaultAction, ...] = ("kill", "notice", "freeze", "thaw", "add", "crash", "trace")
CRASHABLE = ("coordinator", "driver", "zookeeper")
MILESTONES = ("incident", "plan", "checkpoint", "closed")
ZOOKEEPER_AWAY_S = 3.0
NOTICE_S = 10.0
_FIELDS: dict[FaultAction, set[str]] = {
    "kill": {"kill"},
    "notice": {"notice", "for"},
    "freeze": {"freeze", "for"},
    "thaw": {"thaw"},
    "add": {"add"},
    "crash": {"crash", "for"},
    "trace": {"trace", "speedup", "start", "only", "limit"},
}

_KNOWN = {*TRIGGERS, "name", "delay", "count"}.union(*_FIELDS.values())


@dataclass(frozen=True, slots=True)
class Trigger:
    """When it happens.  `value`: seconds since the stream began (at), a batch (batch), how many of a
    milestone (on).  `of`: name or index of the other fault (after), the milestone (on)."""

    kind: TriggerKind
    value: float = 0.0
    of: str = ""
    delay_s: float = 0.0
    """Added to the moment that the trigger names."""

    def describe(self) -> str:
        """When, in a few words."""
        moments: dict[TriggerKind, str] = {
            "at": f"{self.value:g} s into the stream",
            "batch": f"batch {self.value:g}",
            "after": f"fault {self.of}",
            "on": f"{self.of} {self.value:g} of the run",
        }
        moment = moments[self.kind]
        if self.delay_s or self.kind == "after":
            return (f"{self.delay_s:g} s " if self.delay_s else "") + f"after {moment}"
        return moment if self.kind == "at" else f"at {moment}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens.  `nodes`: names, `@operator` or `@operator.index` for the nodes that host those
    partitions at that moment."""

    trigger: Trigger
    action: FaultAction
    nodes: tuple[str, ...] = ()
    count: int = 0
    target: str = ""
    for_s: float | None = None
    """A frozen node thaws, ZooKeeper is started again, a node that was given notice is killed, after this."""
    name: str = ""
    label: str = ""
    """The index in the file; the faults of one trace share it."""

    def describe(self) -> str:
        """A few words for the terminal and the plot."""
        match self.action:
            case "add":
                return f"add {self.count}"
            case "crash":
                return f"crash {self.target}"
            case _:
                return f"{self.action} {' '.join(self.nodes)}"


def load_faults(
    path: str | Path, nodes: int, topology: Topology | None = None, standby: int = 0
) -> tuple[Fault, ...]:
    """The schedule in a YAML file; traces in it are unrolled for a run that starts with `nodes` nodes, and `standby` more.

    With `topology` also the names of partitions and operators (`@name`) are checked.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        items, lines = yaml.safe_load(text), _lines(yaml.compose(text, Loader=yaml.SafeLoader))
    except OSError as error:
        raise FaultFileError(str(path), "", f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FaultFileError(str(path), "", f"is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise FaultFileError(str(path), "", "is nested too deeply or refers to itself") from None
    faults, wrong, complete = _read(items, str(path), nodes, path.parent)
    wrong += _missing_nodes(faults, str(path), nodes + standby, topology, complete)
    placed = [(lines.get(e.field, lines.get(e.field.partition(".")[0])), e) for e in wrong]
    _refuse([error.at(line) for line, error in sorted(placed, key=lambda pair: pair[0] or 0)])
    return faults


def _refuse(wrong: list[FaultFileError]) -> None:
    """FaultFileError with all of these mistakes; nothing where there is none."""
    if wrong:
        first, *others = wrong
        raise FaultFileError(first.file, first.field, first.reason, others)


def _lines(node: yaml.Node | None) -> dict[str, int]:
    """The lines of entries and of their fields, by the names that errors use."""
    found: dict[str, int] = {}
    for index, entry in enumerate(node.value if isinstance(node, yaml.SequenceNode) else []):
        found[f"[{index}]"] = entry.start_mark.line + 1
        for key, _ in entry.value if isinstance(entry, yaml.MappingNode) else []:
            found[f"[{index}].{key.value}"] = key.start_mark.line + 1
    return found


def _missing_nodes(
    faults: Sequence[Fault], file: str, nodes: int, topology: Topology | None, complete: bool
) -> list[FaultFileError]:
    """Nodes that the run can never have, and partitions that are not in the topology.  `complete`: whether these are all
    faults of the file that add nodes; where they are not, names of nodes are not looked at."""
    wrong: list[FaultFileError] = []
    added = sum(fault.count for fault in faults if fault.action == "add")
    known = set(topology.partitions) if topology else set()
    known |= {p.rpartition(".")[0] for p in known}
    for fault in faults:
        for name in fault.nodes:
            if name.startswith("@"):
                good, reason = (
                    not topology or name[1:] in known,
                    f"there is no partition or operator {name[1:]!r}",
                )
                reason += nearest(name[1:], sorted(known))
            else:
                number = int(name[1:]) if re.fullmatch(r"n[1-9]\d{0,8}", name) else 0
                good = not complete or 1 <= number <= nodes + added
                later = f", and up to n{nodes + added} with those that are added" if added else ""
                reason = f"there is no node {name!r}: the run starts with n1 to n{nodes}{later}"
            if not good:
                wrong.append(FaultFileError(file, f"[{fault.label}].{fault.action}", reason))
    return wrong


def parse_faults(items: Any, file: str, nodes: int, folder: Path = Path()) -> tuple[Fault, ...]:
    """Like `load_faults`, but from parsed YAML; whether nodes exist is not checked."""
    faults, wrong, _ = _read(items, file, nodes, folder)
    _refuse(wrong)
    return faults


def _read(
    items: Any, file: str, nodes: int, folder: Path
) -> tuple[tuple[Fault, ...], list[FaultFileError], bool]:
    """The faults as far as entries say what happens; all mistakes; whether each that may add nodes is among the faults."""
    if items is None:
        return (), [], True
    if not isinstance(items, list):
        return (), [FaultFileError(file, "", f"must be a list of faults, not {type(items).__name__}")], False
    found: list[Fault] = []
    wrong: list[FaultFileError] = []
    labels: list[str] = []
    complete = True
    for index, item in enumerate(items):
        try:
            entry = _Entry(file, index, item)
            fault, mistakes = _fault(entry, labels)
            wrong += mistakes
            complete = complete and fault is not None
            if fault is not None:
                found += _unroll(entry, fault, nodes, folder) if fault.action == "trace" else [fault]
        except FaultFileError as error:
            wrong += error.all
            complete = False
        name = item.get("name") if isinstance(item, dict) else None  # who comes after it is not wrong as well
        labels += [str(index), *([name] if isinstance(name, str) and name else [])]
    return tuple(found), wrong, complete


class _Entry:
    """One item of the file with checked access; every failure names file, index and field."""

    def __init__(self, file: str, index: int, item: Any) -> None:
        self.file, self.index = file, index
        if not isinstance(item, dict) or not all(isinstance(key, str | bool) for key in item):
            raise self.error("", "must be a mapping such as {at: 20s, kill: [n3, n4]}")
        # YAML 1.1 reads a bare `on` as true
        self.item: dict[str, Any] = {"on" if key is True else str(key): value for key, value in item.items()}

    def error(self, field: str, reason: str) -> FaultFileError:
        return FaultFileError(self.file, f"[{self.index}]" + (f".{field}" if field else ""), reason)

    def one_of(self, names: tuple[W, ...], what: str) -> W:
        given = [name for name in names if name in self.item]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none"
            raise self.error("", f"needs exactly one {what} of {', '.join(names)}; {found}")
        return given[0]

    def seconds(self, field: str, default: float | None = None) -> float:
        value = self.item.get(field)
        if value is None and default is not None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
            return float(value)
        if not isinstance(value, str):
            raise self.error(field, f"must be a duration such as 20s, not {value!r}")
        try:
            return parse_duration(value)
        except ValueError as error:
            raise self.error(field, str(error)) from error

    def whole(self, field: str, least: int, default: int | None = None) -> int:
        value = self.item.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**9:
            raise self.error(field, f"must be a whole number of at least {least}, not {value!r}")
        return value

    def text(self, field: str, known: tuple[str, ...]) -> str:
        value = self.item.get(field)
        if value not in known:
            raise self.error(field, f"must be one of {', '.join(known)}, not {value!r}")
        return str(value)

    def names(self, field: str) -> tuple[str, ...]:
        value = self.item.get(field)
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not value or not all(isinstance(v, str) and v for v in value):
            raise self.error(field, f"must be a list of node names such as [n3, n4], not {value!r}")
        if len(set(value)) != len(value):
            raise self.error(field, "names a node twice")
        return tuple(value)


def _fault(entry: _Entry, labels: list[str]) -> tuple[Fault | None, list[FaultFileError]]:
    """What happens by an entry, where it says so, and all that is wrong with it; not what only follows from a word that is
    not known."""
    wrong = [
        entry.error(key, f"unknown field{nearest(key, sorted(_KNOWN))}")
        for key in entry.item
        if key not in _KNOWN
    ]
    follows: list[FaultFileError] = []
    when = _kept(follows, lambda: entry.one_of(TRIGGERS, "moment"))
    action = _kept(follows, lambda: entry.one_of(ACTIONS, "action"))
    wrong = wrong or follows
    if when is not None and action is not None:
        allowed = _FIELDS[action] | {when, "name", "delay"} | ({"count"} if when == "on" else set())
        said = f"unknown field; {action} takes {', '.join(sorted(allowed))}"
        wrong += [entry.error(key, said) for key in sorted((set(entry.item) & _KNOWN) - allowed)]
    name = entry.item.get("name", "")
    if not isinstance(name, str) or name in labels or name.isdigit():
        wrong.append(entry.error("name", f"must be a word that no fault before has, not {name!r}"))
    trigger = None if when is None else _kept(wrong, lambda: _trigger(entry, when, labels))
    fault = Fault(trigger or Trigger("at"), action or "add", name=str(name), label=str(entry.index))
    whole = None if action is None else _kept(wrong, lambda: _with_details(entry, fault))
    return whole, wrong


def _kept(wrong: list[FaultFileError], part: Callable[[], P]) -> P | None:
    """What a part of an entry says; None where that is wrong, which is kept."""
    try:
        return part()
    except FaultFileError as error:
        wrong.append(error)
        return None


def _with_details(entry: _Entry, fault: Fault) -> Fault:
    action = fault.action
    match action:
        case "add":
            return replace(fault, count=entry.whole("add", 1))
        case "crash":
            target = entry.text("crash", CRASHABLE)
            if "for" in entry.item and target != "zookeeper":
                raise entry.error(
                    "for", f"a crashed {target} is restarted at once; only zookeeper stays away"
                )
            away = entry.seconds("for", ZOOKEEPER_AWAY_S) if target == "zookeeper" else None
            return replace(fault, target=target, for_s=away)
        case "trace":
            return fault
        case _:
            default = NOTICE_S if action == "notice" else None
            length = entry.seconds("for") if "for" in entry.item else default
            return replace(fault, nodes=entry.names(action), for_s=length)


def _trigger(entry: _Entry, when: TriggerKind, labels: list[str]) -> Trigger:
    delay = entry.seconds("delay", 0.0)
    match when:
        case "at":
            return Trigger("at", entry.seconds("at"), delay_s=delay)
        case "batch":
            return Trigger("batch", entry.whole("batch", 1), delay_s=delay)
        case "on":
            return Trigger("on", entry.whole("count", 1, 1), entry.text("on", MILESTONES), delay)
    label = entry.item["after"]
    if isinstance(label, bool) or str(label) not in labels:
        known = f"there are {', '.join(labels)}" if labels else "there is none"
        raise entry.error(
            "after", f"must be the index or name of a fault before this one ({known}), not {label!r}"
        )
    return Trigger("after", of=str(label), delay_s=delay)


def _unroll(entry: _Entry, fault: Fault, nodes: int, folder: Path) -> list[Fault]:
    """A trace as kills and adds, all tied to the trigger of the entry."""
    speedup = entry.item.get("speedup", 1)
    if isinstance(speedup, bool) or not isinstance(speedup, int | float) or not 0 < speedup < 1e9:
        raise entry.error("speedup", f"must be a number more than 0, not {speedup!r}")
    only = entry.text("only", ("adds", "kills")) if "only" in entry.item else ""
    name = entry.item["trace"]
    if not isinstance(name, str) or not name:
        raise entry.error("trace", f"must be the path of a trace, not {name!r}")
    limit = entry.whole("limit", 1, 10**6)
    start = entry.seconds("start", 0.0)
    try:
        changes = read_trace(folder / name, nodes, start)
    except FaultFileError as error:
        raise entry.error(
            "trace", f"{error.file}: {error.field + ' ' if error.field else ''}{error.reason}"
        ) from error
    found: list[Fault] = []
    for offset, lost, added in changes:
        trigger = replace(fault.trigger, delay_s=fault.trigger.delay_s + offset / speedup)
        if lost and only != "adds":
            found.append(replace(fault, trigger=trigger, action="kill", nodes=lost))
        if added and only != "kills":
            found.append(replace(fault, trigger=trigger, action="add", count=added))
    return found[:limit]


def most_killed(faults: tuple[Fault, ...]) -> int:
    """How many standby nodes replace every node that a schedule takes."""
    return len({n for f in faults if f.action in ("kill", "notice", "freeze") for n in f.nodes})
