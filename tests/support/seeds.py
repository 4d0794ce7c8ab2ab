"""Random seeds of `make test-soak`: another range each time, which the command prints.

`make test` and `make test-all` have the seeds that stand in the tests.  A seed that failed is in the name of its test; the
same command with the printed value of the variable runs it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

from tools.run_tests import SOAK_SEED


def soak_numbers(count: int) -> range:
    """So many seeds from the first one on; none where no soak is asked for."""
    first = os.environ.get(SOAK_SEED)
    return range(0) if first is None else range(int(first), int(first) + count)


def soak_seeds(count: int) -> list[Any]:
    """The same as parameters that `make test-soak` alone runs."""
    return [pytest.param(seed, marks=pytest.mark.soak) for seed in soak_numbers(count)]


def seeds(always: Iterable[int], wide: Iterable[int], soak: int) -> pytest.MarkDecorator:
    """A test with a `seed`: those that `make test` has, those that `make test-all` adds, and so many of `make test-soak`."""
    more = [pytest.param(seed, marks=pytest.mark.wide) for seed in wide]
    return pytest.mark.parametrize("seed", [*always, *more, *soak_seeds(soak)])
