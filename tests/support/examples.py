"""How many examples a property is shown: all by `make test`, a share of them by `make test-fast`."""

from __future__ import annotations

import os

from hypothesis import settings

VARIABLE = "REPRISE_TEST_EXAMPLES"
SHARE = float(os.environ.get(VARIABLE, "1"))
_LEAST = 5


def examples(count: int) -> settings:
    """A decorator for `count` examples where all are asked for; `VARIABLE` says which share of them is."""
    return settings(max_examples=max(round(count * SHARE), _LEAST))
