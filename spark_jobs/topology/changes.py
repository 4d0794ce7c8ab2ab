"""How two topologies of one name differ, what that does while one of them runs, and what of it takes effect in place.

What takes effect in place are the values of all fields of which `change_table` says so, together: its `settings`, one map of
path to value.  Whoever has the topology that a driver was started with, and these, has the topology in effect (`in_effect`):
coordinator, driver and whoever shows it compute the same one.  Invariant: a topology in effect is a checked one.  Where the
settings do not go with a field that waits for another driver, none of them takes effect before that driver does, but those
that stand alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.topology.change_table import TABLE, Effect, has_row, row_of
from reprise.spark_jobs.topology.check import mistakes
from reprise.spark_jobs.topology.graph_change import GraphChange, graph_change, graph_of, unable_to_change
from reprise.spark_jobs.topology.parse import override
from reprise.spark_jobs.topology.resource import StreamTopology

Settings = Mapping[str, Any]
"""Path below `spec` -> value; None where the field is not given."""
ALONE = ("paused", "upgrade")
"""Settings that go with everything."""
_SETTINGS = tuple(
    (part, path)
    for part, _, path in (
        row.path.rpartition("[].")
        for row in TABLE
        if row.effect.in_place and not row.path.startswith("metadata")
    )
)
"""Fields that take effect in place: the list in whose items each is (sources, operators; empty: in none), and its path."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    path: str
    """As people write it, e.g. `spec.operators[count].output.priority`."""
    before: Any
    """None: it was not there."""
    after: Any
    """None: it is not there any more."""
    effect: Effect
    reason: str


def changes(before: StreamTopology, after: StreamTopology) -> list[Change]:
    """Every field that differs between what runs and what is wanted, in the order of the resource."""
    old, new = json.loads(before.document), json.loads(after.document)
    found = [*_different("metadata", "metadata", old["metadata"], new["metadata"])]
    for part in sorted(old["spec"].keys() | new["spec"].keys()):
        found += _different(f"spec.{part}", part, old["spec"].get(part), new["spec"].get(part))
    return found


def _different(path: str, field: str, old: Any, new: Any) -> Iterator[Change]:
    """`path`: for people; `field`: the same as in the table."""
    if old == new:
        return
    whole = (old is None or new is None) and has_row(field)
    if not whole and _is(dict, old, new):
        for key in sorted((old or {}).keys() | (new or {}).keys()):
            yield from _different(
                f"{path}.{key}", f"{field}.{key}", (old or {}).get(key), (new or {}).get(key)
            )
    elif _is(list, old, new) and (key := _key(old or new)):
        items, others = ({str(item[key]): item for item in some or []} for some in (old, new))
        for name in [*items, *(name for name in others if name not in items)]:
            one, other = items.get(name), others.get(name)
            here = f"{field}[secret]" if "secret" in {**(one or {}), **(other or {})} else f"{field}[]"
            if one is None or other is None:
                yield _change(f"{path}[{name}]", here, one, other)
            else:
                yield from _different(f"{path}[{name}]", here, one, other)
    else:
        yield _change(path, field, old, new)


def _is(kind: type, old: Any, new: Any) -> bool:
    return all(value is None or isinstance(value, kind) for value in (old, new))


def _key(items: Any) -> str:
    """The field by which the items of a list are told apart; empty: none."""
    for key in ("name", "mountPath"):
        if items and all(isinstance(item, dict) and key in item for item in items):
            return key
    return ""


def _change(path: str, field: str, old: Any, new: Any) -> Change:
    row = row_of(field)
    return Change(path, old, new, row.effect, row.reason)


def require_queries_alone(before: StreamTopology, after: StreamTopology) -> GraphChange:
    """The queries that come and go, where nothing else differs but what takes effect in place.  SpecError: each other field
    that differs; queries cannot come and go in this topology; none does; or the result is no topology."""
    raise_all(
        SpecError(
            change.path,
            f"takes effect {change.effect.value}, and does not go with queries that come or go: {change.reason}; nothing "
            "was changed",
        )
        for change in changes(before, after)
        if not (change.effect.in_place or change.effect is Effect.QUERIES)
    )
    change = graph_change(graph_of(before), graph_of(after))
    if not change:
        raise SpecError("spec.operators", "no query comes or goes")
    raise_all(unable_to_change(after))
    raise_all(mistakes(after))
    return change


def require_able_to_change(before: StreamTopology, after: StreamTopology) -> GraphChange:
    """The queries that come and go behind a drain, where a new driver with new executors takes over: whatever takes another
    driver, or a drain, may change with them.  SpecError: the graph changes in a way that no running stream takes, each with
    its field; or queries do not come and go in a stream of this kind."""
    change = graph_change(graph_of(before), graph_of(after))
    if change:
        raise_all((*unable_to_change(before), *unable_to_change(after)))
    return change


def settings_of(resource: StreamTopology) -> dict[str, Any]:
    """The values of all fields that take effect in place."""
    spec, found = json.loads(resource.document)["spec"], {}
    for part, path in _SETTINGS:
        if not part:
            found[path] = _at(spec, path)
            continue
        for item in spec[part]:
            if not path.startswith("output.") or "output" in item:
                found[f"{part}[{item['name']}].{path}"] = _at(item, path)
    return found


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def revision_of_settings(settings: Settings) -> str:
    """Names these settings; of equal ones it is the same."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def in_effect(started: StreamTopology, settings: Settings) -> StreamTopology:
    """The topology that a driver was started with, with these settings.  Those of fields that it does not have, of another
    version or of another graph, are left out."""
    own = settings_of(started)
    wanted = {path: value for path, value in settings.items() if path in own and value != own[path]}
    for some in (wanted, {path: value for path, value in wanted.items() if path in ALONE}):
        try:
            found = override(started, some) if some else started
        except SpecError:
            continue
        if found is started or not mistakes(found):
            return found
    return started


def without_settings(resource: StreamTopology) -> dict[str, Any]:
    """The spec as in the document, without what takes effect in place: where that is equal, no other driver is needed."""
    spec: dict[str, Any] = json.loads(resource.document)["spec"]
    for part, path in _SETTINGS:
        for holder in spec[part] if part else [spec]:
            _remove(holder, path, f"{part}[]." if part else "")
    return spec


def _remove(holder: Any, path: str, above: str) -> None:
    """Takes a field away, and the mapping that held nothing else, unless that it is there says something.  `above`: what
    the table writes before `path`."""
    key, _, below = path.partition(".")
    if not isinstance(holder, dict):
        return
    if not below:
        holder.pop(key, None)
        return
    _remove(holder.get(key), below, f"{above}{key}.")
    if holder.get(key) == {} and not has_row(f"{above}{key}"):
        del holder[key]
