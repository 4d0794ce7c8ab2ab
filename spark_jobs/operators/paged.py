"""Operators whose state is stored in pages where `checkpoint.state` is `paged`: of a snapshot only what has changed.

What is restored is the same tables in either way, so `restore` knows nothing of pages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import Spillable


class PagedOperator(Operator):
    """An operator that offers its state in pages, beside `freeze`."""

    @abstractmethod
    def freeze_pages(self, state: Any) -> Callable[[], Parts]:
        """Like `freeze`, of the same tables, those that are large in pages.  Quick: nothing is copied whole."""

    def spillable(self, state: Any) -> Sequence[Spillable]:
        """What of a state may be on the node's disk while it is hardly used; by default nothing."""
        return ()


def freezer(operator: Operator, paged: bool) -> Callable[[Any], Callable[[], Parts]]:
    """How a state is frozen.  A class that says by its own `freeze` what it stores, and inherits `freeze_pages`, may store
    more than that gives: its state is stored whole."""
    if paged and (pages := _in_pages(operator)) is not None:
        return pages.freeze_pages
    return operator.freeze


def spillable(operator: Operator, state: Any) -> Sequence[Spillable]:
    """What of a state may be on disk.  One that is frozen whole stays in memory: each snapshot would read all of it."""
    return () if state is None or (pages := _in_pages(operator)) is None else pages.spillable(state)


def _in_pages(operator: Operator) -> PagedOperator | None:
    if isinstance(operator, PagedOperator):
        for kind in type(operator).__mro__:
            if "freeze_pages" in vars(kind):
                return operator
            if "freeze" in vars(kind):
                return None
    return None
