"""Which queries are to do without what they have missed: a znode for each wish below `skips`, by `reprise skip`.

`skips/<query>` is written once and never changed, and goes in the transaction with which a coordinator takes the wish.
"""

from __future__ import annotations

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.fields import dumps, loads
from reprise.scheduler.model import SkipWish


def encode_skip(wish: SkipWish) -> bytes:
    return dumps({"id": wish.id})


def parse_skip(raw: bytes, path: str = paths.SKIPS) -> SkipWish:
    return SkipWish(loads(raw, path).text("id"))
