"""Own operators whose state is made of maps, lists and deques: how it is stored, restored, changed and divided follows from
them.

Problem: whoever writes `freeze` and `restore` by hand stores the whole state with each snapshot, holds up processing while
it is copied, and has to say how it is divided.  Here a state is a dataclass; what its fields are says all of that.  With
`checkpoint.state: paged` the same class stores pages that have changed, and with `checkpoint.stateMemory` what is hardly
used is on the node's disk.

A state is stored as tables named `field.table`; fields that are plain values are the columns of the table `fields`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Place, Tables, Targets
from reprise.spark_jobs.operators.frames import one_row
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.state_columns import COLUMNS, FORM, StateStructure
from reprise.spark_jobs.operators.state_map import MapState
from reprise.spark_jobs.operators.state_rows import DequeState, ListState
from reprise.spark_jobs.operators.timers import Timers
from reprise.spark_jobs.pages import Part, Parts
from reprise.spark_jobs.spill import Spillable

FIELDS, TIMERS = "fields", "timers"
_PLAIN = (bool, int, float, str, bytes, type(None))


class StatefulOperator(PagedOperator):
    """An operator that defines `initial` and `step`, and whose state is a dataclass.

    Its fields are `MapState`, `ListState`, `DequeState`, `Timers`, and plain values (whole numbers, floats, text, bytes,
    truth values, None).  TypeError where one is something else, or where the state has attributes that are no fields.
    """

    def freeze(self, state: Any) -> Callable[[], Tables]:
        """See `Operator.freeze`."""
        return self._frozen(state, paged=False)

    def freeze_pages(self, state: Any) -> Callable[[], Parts]:
        """See `PagedOperator.freeze_pages`."""
        return self._frozen(state, paged=True)

    def spillable(self, state: Any) -> Sequence[Spillable]:
        return [
            piece
            for _, held in _fields(state)
            if isinstance(held, StateStructure)
            for piece in held.spillable()
        ]

    def restore(self, place: Place, tables: Tables) -> Any:
        """See `Operator.restore`.  ValueError: what was stored has other fields or columns."""
        state, stored = self.initial(place), _by_field(tables)
        if state is None:
            if tables:
                raise ValueError(_other(f"a table {min(tables)!r}"))
            return None
        values = one_row(tables[FIELDS]) if FIELDS in tables else {}
        for name, held in _fields(state):
            if isinstance(held, StateStructure):
                _require_alike(name, held, stored.get(name))
                held.load(stored[name])
            elif isinstance(held, Timers):
                if name not in stored:
                    raise ValueError(_other(f"no timers {name!r}"))
                setattr(state, name, Timers.restore(stored[name][TIMERS]))
            elif name not in values:
                raise ValueError(_other(f"no field {name!r}"))
            else:
                setattr(state, name, values[name])
        known = {name for name, _ in _fields(state)}
        if more := sorted((stored.keys() | values.keys()) - known):
            raise ValueError(_other(f"a field {more[0]!r} more"))
        return state

    # -- changed, and divided ------------------------------------------------------------------------------------------

    def stored_rows(self, tables: Tables) -> dict[str, pa.Table]:
        """What a state holds, of this or an earlier version of such a class, for `upgrade_state`: the rows of each map,
        list, deque and timers by field, and its plain values as one row of `fields`.  ValueError: an operator of another
        kind has stored it, whose `tables` are as its `freeze` has given them."""
        found = {name: _rows(stored) for name, stored in _by_field(tables).items()}
        return {**found, FIELDS: tables[FIELDS]} if FIELDS in tables else found

    def as_stored(self, place: Place, rows: Mapping[str, pa.Table]) -> Tables:
        """The tables of a state of this class that holds these rows; the inverse of `stored_rows`.  What is not given is as
        in `initial`."""
        state = self.initial(place)
        values = one_row(rows[FIELDS]) if FIELDS in rows else {}
        known = dict(_fields(state))
        if wrong := sorted((rows.keys() - {FIELDS} | values.keys()) - known.keys()):
            raise ValueError(f"the state of {type(self).__name__} has no field {wrong[0]!r}")
        for name, held in known.items():
            if isinstance(held, StateStructure) and name in rows:
                held.clear()
                held.extend(rows[name])
            elif isinstance(held, Timers) and name in rows:
                setattr(state, name, Timers.restore(rows[name]))
            elif name in values:
                setattr(state, name, values[name])
        return self.freeze(state)()

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        """See `Operator.split_state`.  ValueError: it has plain values, which belong to no key."""
        self._require_keys_alone([tables])
        parts: list[dict[str, pa.Table]] = [{} for _ in range(parallelism)]
        for name, stored in _by_field(tables).items():
            rows = _rows(stored)
            keys = (
                Timers.keys_of(rows, self.state_keys or ()) if TIMERS in stored else self.keys_of(name, rows)
            )
            index = targets(keys) if rows.num_rows else np.zeros(0, np.int64)
            for number in range(parallelism):
                parts[number] |= _stored(name, stored, [rows.filter(pa.array(index == number))])
        return parts

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        """See `Operator.merge_states`."""
        self._require_keys_alone(parts)
        each = [_by_field(part) for part in parts]
        merged: dict[str, pa.Table] = {}
        for name, stored in each[0].items():
            merged |= _stored(name, stored, [_rows(part[name]) for part in each])
        return merged

    def _require_keys_alone(self, parts: Sequence[Tables]) -> None:
        for part in parts:
            if FIELDS in part:
                names = ", ".join(part[FIELDS].column_names)
                raise ValueError(
                    f"the state of {type(self).__name__} has plain values ({names}), which belong to no key: define "
                    "`split_state` and `merge_states`, with `stored_rows` and `as_stored`"
                )

    def _frozen(self, state: Any, paged: bool) -> Callable[[], Any]:
        if state is None:
            return dict
        encoders: dict[str, Callable[[], Mapping[str, Part]]] = {}
        described: dict[str, Tables] = {}
        values: dict[str, list[Any]] = {}
        for name, held in _fields(state):
            if isinstance(held, StateStructure):
                encoders[name] = held.freeze_pages() if paged else held.freeze()
                described[name] = held.described()
            elif isinstance(held, Timers):
                encoders[name] = _timers(held)
            else:
                values[name] = [held]
        fields = {FIELDS: pa.table(values)} if values else {}

        def encode() -> dict[str, Part]:
            found: dict[str, Part] = dict(fields)
            for name, encoder in encoders.items():
                tables = {**described.get(name, {}), **encoder()}
                found |= {f"{name}.{table}": part for table, part in tables.items()}
            return found

        return encode


def _timers(held: Timers) -> Callable[[], Tables]:
    frozen = held.freeze()
    return lambda: {TIMERS: frozen()}


def _fields(state: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a state.  TypeError: it is no dataclass, or one of them cannot be stored."""
    if state is None:
        return
    if not dataclasses.is_dataclass(state) or isinstance(state, type):
        raise TypeError(f"the state must be a dataclass, not {type(state).__name__}")
    names = {field.name for field in dataclasses.fields(state)}
    if more := sorted(getattr(state, "__dict__", {}).keys() - names):
        raise TypeError(
            f"{more[0]!r} is no field of the state, and would not be stored: declare it with its type"
        )
    for field in dataclasses.fields(state):
        held = getattr(state, field.name)
        if field.name == FIELDS:
            raise TypeError(
                f"{FIELDS!r} is the name of the table of plain values, and of no field of the state"
            )
        if not isinstance(held, StateStructure | Timers) and type(held) not in _PLAIN:
            raise TypeError(
                f"the field {field.name!r} of the state is a {type(held).__name__}; use MapState, ListState, DequeState, "
                "Timers, numbers, text, bytes, truth values or None"
            )
        yield field.name, held


def _by_field(tables: Tables) -> dict[str, dict[str, pa.Table]]:
    found: dict[str, dict[str, pa.Table]] = {}
    for name, table in tables.items():
        field, _, rest = name.partition(".")
        if rest:
            found.setdefault(field, {})[rest] = table
        elif name != FIELDS:
            raise ValueError(
                f"the table {name!r} was stored by no StatefulOperator: take its rows from the tables themselves"
            )
    return found


def _made(stored: Tables) -> StateStructure:
    """The structure that has been stored, by what it says of itself."""
    form, schema = one_row(stored[FORM]), stored[COLUMNS].schema
    columns = list(zip(schema.names, schema.types, strict=True))
    found: StateStructure
    match form["kind"]:
        case "map":
            found = MapState(dict(columns[: form["number"]]), dict(columns[form["number"] :]))
        case "list":
            found = ListState(dict(columns))
        case "deque":
            found = DequeState(dict(columns))
        case kind:
            raise ValueError(f"a state of kind {kind!r} is not known")
    found.load(stored)
    return found


def _rows(stored: Tables) -> pa.Table:
    return stored[TIMERS] if TIMERS in stored else _made(stored).table()


def _stored(name: str, like: Tables, parts: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """The tables of a field that holds the rows of all parts, one after the other."""
    if TIMERS in like:
        return {f"{name}.{TIMERS}": pa.concat_tables(parts).combine_chunks()}
    found = _made(like).empty()
    for part in parts:
        found.extend(part)
    return {f"{name}.{table}": rows for table, rows in {**found.described(), **found.freeze()()}.items()}


def _require_alike(name: str, held: StateStructure, stored: Tables | None) -> None:
    if stored is None or FORM not in stored:
        raise ValueError(_other(f"no {held.form[0]} {name!r}"))
    form, schema = one_row(stored[FORM]), stored[COLUMNS].schema
    keys = form["kind"] != "map" or form["number"] == held.form[1]
    if form["kind"] != held.form[0] or not keys or not schema.equals(held.row_type.schema):
        was = ", ".join(f"{n} {t}" for n, t in zip(schema.names, schema.types, strict=True))
        raise ValueError(_other(f"as {name!r} a {form['kind']} of {was}"))


def _other(what: str) -> str:
    return f"the stored state has {what}, and the class declares another form: raise `state_version` and take it over"
