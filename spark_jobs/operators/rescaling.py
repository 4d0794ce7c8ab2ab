"""States of library operators divided by key, and put together, when parallelism changes.

A state is taken as the tables that checkpoints hold, so it does not matter whether it was stored whole or in pages.
Invariant: parts of one state hold each key once, with all that the state has of it, in the order that it had there; and a
state made of parts is one that the operator could have come to itself with the rows of these keys.  What a state has beside
keys is either a counter, of which the sum over partitions is what counts, or follows from watermarks and batches, and is
the same in all partitions: where it is not, nothing is put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Operator, Tables, Targets, joined_rows
from reprise.spark_jobs.operators.entries import Entries
from reprise.spark_jobs.operators.frames import Ints, one_row
from reprise.spark_jobs.operators.keys import KeyIndex
from reprise.spark_jobs.operators.slots import Accumulators, restore, unified

COUNTERS = frozenset(("late", "duplicates"))
"""Columns of `meta` that count what happened; the first part takes them."""
SIZES = frozenset(("slots", "keys", "groups"))
"""Columns of `meta` that count what the state holds."""


def slots_of_parts(keys: pa.Table, targets: Targets, parallelism: int) -> list[Ints]:
    """The slots of keys, which are in slot order, that each part gets, ascending."""
    index = targets(keys) if keys.num_rows else np.zeros(0, np.int64)
    return [np.flatnonzero(index == number) for number in range(parallelism)]


def taken(table: pa.Table, rows: Ints) -> pa.Table:
    """Some rows of a table, of which there may be no columns."""
    return table.take(pa.array(rows)).combine_chunks() if table.num_columns else table


def part_of_meta(meta: pa.Table, number: int, sizes: Mapping[str, int]) -> pa.Table:
    """The `meta` of part `number`, which holds as much as `sizes` say."""
    row = one_row(meta) | dict(sizes)
    if number:
        row |= dict.fromkeys(COUNTERS & row.keys(), 0)
    return pa.table({field.name: pa.array([row[field.name]], field.type) for field in meta.schema})


def merged_meta(metas: Sequence[pa.Table]) -> pa.Table:
    """The `meta` of parts put together.  ValueError: what must be the same in all partitions is not."""
    rows = [one_row(meta) for meta in metas]
    found = dict(rows[0])
    for name in found:
        values = [row[name] for row in rows]
        if name in COUNTERS | SIZES:
            found[name] = sum(values)
        elif len(set(values)) > 1:
            raise ValueError(
                f"{name} differs between the partitions of one checkpoint: {sorted(map(str, set(values)))}"
            )
    return pa.table({field.name: pa.array([found[field.name]], field.type) for field in metas[0].schema})


def offsets(sizes: Iterable[int]) -> list[int]:
    """How much is before each of the parts."""
    return list(accumulate(sizes, initial=0))[:-1]


def stacked(parts: Sequence[Accumulators], before: Sequence[int]) -> Accumulators:
    """Accumulators of parts over the slots of all, those of each part after the number that is `before` it."""
    found = Accumulators()
    for part, at in zip(parts, before, strict=True):
        if part.size:
            found.put(np.arange(at, at + part.size), part.gather(np.arange(part.size), part.names))
    return found


class KeyedTables(Operator):
    """An operator whose state is `keys` in slot order, `values` by slot and `meta` with their number, `slots`."""

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        parts, values = [], tables["values"]
        for number, slots in enumerate(slots_of_parts(tables["keys"], targets, parallelism)):
            parts.append(
                {
                    "keys": taken(tables["keys"], slots),
                    "values": taken(values, slots[slots < values.num_rows]),
                    "meta": part_of_meta(tables["meta"], number, {"slots": len(slots)}),
                }
            )
        return parts

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        sizes = [one_row(part["meta"])["slots"] for part in parts]
        values = stacked([restore(part["values"]) for part in parts], offsets(sizes))
        return {
            "keys": joined_rows([part["keys"] for part in parts]),
            "values": values.freeze()(),
            "meta": merged_meta([part["meta"] for part in parts]),
        }


class EntriesTables(Operator):
    """An operator whose state is `Entries`, and `meta`."""

    keys: tuple[str, ...]

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        held = Entries.restore(self.keys, tables)
        places = held.all()
        owners = held.owners(places)
        parts = []
        for number, slots in enumerate(slots_of_parts(tables["keys"], targets, parallelism)):
            mine = np.isin(owners, slots)
            part = _entries(self.keys, taken(tables["keys"], slots), len(slots))
            part.add(np.searchsorted(slots, owners[mine]), held.everything(places[mine]))
            parts.append({**part.freeze()(), "meta": part_of_meta(tables["meta"], number, {})})
        return parts

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        held = [Entries.restore(self.keys, part) for part in parts]
        sizes = [each.index.size for each in held]
        found = _entries(self.keys, joined_rows([part["keys"] for part in parts]), sum(sizes))
        for each, before in zip(held, offsets(sizes), strict=True):
            places = each.all()
            found.add(each.owners(places) + before, each.everything(places))
        return {**found.freeze()(), "meta": merged_meta([part["meta"] for part in parts])}


def _entries(by: Sequence[str], keys: pa.Table, size: int) -> Entries:
    found = Entries(by)
    found.index = KeyIndex(by, keys, size)
    return found


class WindowTables(Operator):
    """An operator whose state is panes over the slots of one key index."""

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        panes = panes_of(tables)
        parts = []
        for number, slots in enumerate(slots_of_parts(tables["keys"], targets, parallelism)):
            mine = {start: pane.take(slots) for start, pane in panes.items()}
            meta = part_of_meta(tables["meta"], number, {"slots": len(slots)})
            parts.append({"keys": taken(tables["keys"], slots), "meta": meta, **tables_of_panes(mine)})
        return parts

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        before = offsets(one_row(part["meta"])["slots"] for part in parts)
        held = [panes_of(part) for part in parts]
        panes = {
            start: stacked([each.get(start, Accumulators()) for each in held], before)
            for start in sorted({start for each in held for start in each})
        }
        unified(list(panes.values()))
        return {
            "keys": joined_rows([part["keys"] for part in parts]),
            "meta": merged_meta([part["meta"] for part in parts]),
            **tables_of_panes(panes),
        }


def panes_of(tables: Tables) -> dict[int, Accumulators]:
    """The panes of a state by their start, in its order."""
    if "panes" not in tables:
        return {}
    found, at = {}, 0
    for start, size in zip(*(tables["panes"].column(n).to_pylist() for n in ("start", "size")), strict=True):
        found[start] = restore(tables["values"].slice(at, size).combine_chunks())
        at += size
    return found


def tables_of_panes(panes: Mapping[int, Accumulators]) -> dict[str, pa.Table]:
    """The inverse; a pane in which no key has rows is none."""
    some = {start: pane for start, pane in panes.items() if len(pane.present())}
    if not some:
        return {}
    starts = pa.table({"start": list(some), "size": [pane.size for pane in some.values()]})
    values = pa.concat_tables([pane.freeze()() for pane in some.values()]).combine_chunks()
    return {"panes": starts, "values": values}
