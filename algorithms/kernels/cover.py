"""Sets over elements, for the kernels: who contains what, in compressed rows.

A *set* has a worth, an *element* a price that is paid once, as soon as any chosen set contains it. Queries are
sets of partitions (worth: priority, price: cost). Seen from the other side, partitions are sets of the queries
that need them; `reprise.algorithms.local_search` says what that is good for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Cover(NamedTuple):
    """Elements of set s: `row[row_at[s]:row_at[s + 1]]`; sets that contain element k, likewise in `column`."""

    worth: Ints
    price: Ints
    row_at: Ints
    row: Ints
    column_at: Ints
    column: Ints

    def members(self, chosen: int) -> Ints:
        return self.row[self.row_at[chosen] : self.row_at[chosen + 1]]

    def alone(self) -> Ints:
        """What each set pays when it is chosen alone."""
        padded = np.concatenate([self.price[self.row], np.zeros(1, np.int64)])
        sums = np.add.reduceat(padded, self.row_at[:-1]) if len(self.worth) else padded[:0]
        return np.where(np.diff(self.row_at) > 0, sums, 0)


def make_cover(worth: Sequence[int], price: Sequence[int], rows: Sequence[Sequence[int]]) -> Cover:
    """Make a cover of the elements of each set, which ascend."""
    columns: list[list[int]] = [[] for _ in price]
    for chosen, elements in enumerate(rows):
        for element in elements:
            columns[element].append(chosen)
    row_at, row = _compressed(rows)
    column_at, column = _compressed(columns)
    return Cover(np.array(worth, np.int64), np.array(price, np.int64), row_at, row, column_at, column)


def _compressed(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    ends = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return ends, np.array([entry for entries in lists for entry in entries], np.int64)
