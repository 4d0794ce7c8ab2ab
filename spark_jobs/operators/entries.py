"""Things of keys that end with the watermark, such as open sessions: each has a key and numbers, and a key may have several.

Problem: `Accumulators` have one place for each key, for good; here a key has none, one or many, which come and go with event
time.  Places are those of one set of `Accumulators`, beside the number of the key that owns each; a place that is free has
no rows, and is taken again before the arrays grow.  A look at all places costs a comparison of an array, and only those that
change are written, so freezing and pages are those of `Accumulators`.  Keys and places that nothing needs are let go when
they are more than half.

Invariant: which places are free follows from the tables that are stored; so a restored state takes the same ones next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.operators.aggregates import Array, Partials, identity
from reprise.spark_jobs.operators.frames import Ints
from reprise.spark_jobs.operators.keys import KeyIndex
from reprise.spark_jobs.operators.slots import Accumulators, restore
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import SpillStore

_OWNER = "owner"
_COMPACT_FROM = 1024


class Entries:
    """Entries by key; `index` gives the keys their slots.  An entry has named values, of which `ROWS` is positive."""

    __slots__ = ("_values", "index")

    def __init__(self, keys: Sequence[str]) -> None:
        self.index = KeyIndex(keys)
        self._values = Accumulators()

    def all(self) -> Ints:
        """The places of all entries, in order."""
        return self._values.present()

    def of(self, slots: Ints) -> Ints:
        """The places of the entries of these keys, in order."""
        places = self.all()
        wanted = np.zeros(self.index.size, np.bool_)
        wanted[slots] = True
        return places[wanted[self.owners(places)]]

    def owners(self, places: Ints) -> Ints:
        """The slot of the key of each of these entries."""
        return self._values.gather(places, [_OWNER]).get(_OWNER, np.zeros(0, np.int64))

    def values(self, places: Ints, names: Sequence[str]) -> Partials:
        """The named values of these entries; names that were never written are left out."""
        return self._values.gather(places, names)

    def everything(self, places: Ints) -> Partials:
        """All named values of these entries, as `add` takes them."""
        found = self._values.gather(places, self._values.names)
        return {name: values for name, values in found.items() if name != _OWNER}

    def value(self, places: Ints, name: str) -> Array:
        """One of them, of integers."""
        return self._values.gather(places, [name]).get(name, np.zeros(0, np.int64))

    def fit(self, values: Partials) -> Partials:
        """See `Accumulators.fit`."""
        return self._values.fit(values)

    def add(self, owners: Ints, values: Partials) -> None:
        """New entries of keys in these slots."""
        if not len(owners):
            return
        taken = np.zeros(self._values.size, np.bool_)
        taken[self.all()] = True
        free = np.flatnonzero(~taken)[: len(owners)]
        more = np.arange(self._values.size, self._values.size + len(owners) - len(free))
        self._values.put(np.concatenate([free, more]), {**values, _OWNER: owners})

    def remove(self, places: Ints) -> None:
        """These entries are no more."""
        if len(places):
            kinds = {n: t for n, t in self._values.types.items() if ":" not in t}
            self._values.put(places, {n: _nothing(n, t, len(places)) for n, t in kinds.items()})

    def compact(self) -> None:
        """Let go keys without entries, and places that are free, where they are more than half."""
        places = self.all()
        owners = self.owners(places)
        live = np.unique(owners)
        keys_too_many = self.index.size >= _COMPACT_FROM and 2 * len(live) < self.index.size
        if keys_too_many:
            self.index = self.index.keep(live)
            owners = np.searchsorted(live, owners)
        if keys_too_many or (self._values.size >= _COMPACT_FROM and 2 * len(places) < self._values.size):
            values = self._values.gather(places, self._values.names)
            self._values = Accumulators({**values, _OWNER: owners})

    def freeze(self) -> Callable[[], Tables]:
        """A function that gives the tables `keys`, `entries` and `size`, as of now."""
        keys, values, size = self.index.freeze(), self._values.freeze(), self._size()
        return lambda: {"keys": keys(), "entries": values(), "size": size}

    def freeze_pages(self) -> Callable[[], Parts]:
        """The same, those that are large in pages."""
        keys, values, size = self.index.freeze_pages(), self._values.freeze_pages(), self._size()
        return lambda: {"keys": keys(), "entries": values(), "size": size}

    def spill(self, store: SpillStore, least: int) -> int:
        """See `Spillable.spill`."""
        return self.index.spill(store, least) + self._values.spill(store, least)

    def _size(self) -> pa.Table:
        return pa.table({"slots": [self.index.size]})

    @classmethod
    def restore(cls, keys: Sequence[str], tables: Tables) -> Entries:
        """The inverse of `freeze`."""
        found = cls(keys)
        found.index = KeyIndex(keys, tables["keys"], tables["size"].column("slots")[0].as_py())
        found._values = restore(tables["entries"])
        return found


def _nothing(name: str, kind: str, size: int) -> Array:
    return np.full(size, identity(name, kind), kind)
