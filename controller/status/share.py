"""The share of queries that are available, weighted by priority: the one definition for status, simulation and reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@overload
def priority_share(queries: Iterable[tuple[int, bool]]) -> float: ...


@overload
def priority_share(queries: Iterable[tuple[int, NDArray[np.bool_]]]) -> NDArray[np.float64] | float: ...


def priority_share(
    queries: Iterable[tuple[int, bool]] | Iterable[tuple[int, NDArray[np.bool_]]],
) -> NDArray[np.float64] | float:
    """The summed priority of what is up over that of all, 0..1; 1 where there is no query.  `queries`: the priority of each
    and whether it is up, or, on a grid of times, at which of them it is."""
    pairs: list[tuple[int, Any]] = list(queries)
    total = sum(priority for priority, _ in pairs)
    share: NDArray[np.float64] | float = (
        sum(priority * up for priority, up in pairs) / total if total else 1.0
    )
    return share
