"""Operators whose state is stored in pages where `checkpoint.state` is `paged`: of a snapshot only what has changed.

What is restored is the same tables in either way, so `restore` knows nothing of pages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.pages import Parts


class PagedOperator(Operator):
    """An operator that offers its state in pages, beside `freeze`."""

    @abstractmethod
    def freeze_pages(self, state: Any) -> Callable[[], Parts]:
        """Like `freeze`, of the same tables, those that are large in pages.  Quick: nothing is copied whole."""


def freezer(operator: Operator, paged: bool) -> Callable[[Any], Callable[[], Parts]]:
    """How a state is frozen.  A class that says by its own `freeze` what it stores, and inherits `freeze_pages`, may store
    more than that gives: its state is stored whole."""
    if paged and isinstance(operator, PagedOperator):
        for kind in type(operator).__mro__:
            if "freeze_pages" in vars(kind):
                return operator.freeze_pages
            if "freeze" in vars(kind):
                break
    return operator.freeze
