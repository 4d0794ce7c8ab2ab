"""How many examples a property is shown: all by `make test-all`, a share of them by `make test`."""

from __future__ import annotations

import os

from hypothesis import settings

from tools.run_tests import EXAMPLES

SHARE = float(os.environ.get(EXAMPLES, "1"))
_LEAST = 5


def examples(count: int) -> settings:
    """A decorator for `count` examples where all are asked for; `EXAMPLES` says which share of them is."""
    return settings(max_examples=max(round(count * SHARE), _LEAST))
