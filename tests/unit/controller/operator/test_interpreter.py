"""What has been there for a while is not looked at by each collection, and is not kept for ever either."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from reprise.controller.operator.interpreter import ALL_S, ASIDE_S, Garbage


class Ring:
    """Only a collection frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.wide
def test_survivors_are_set_aside_after_a_while() -> None:
    now = [0.0]
    garbage, before = Garbage(lambda: now[0]), gc.get_freeze_count()
    garbage.tidy()
    assert gc.get_freeze_count() == before
    now[0] = ASIDE_S
    garbage.tidy()
    assert gc.get_freeze_count() > before


@pytest.mark.wide
def test_what_was_set_aside_and_is_garbage_since_then_goes_in_the_end() -> None:
    now = [0.0]
    garbage, ring = Garbage(lambda: now[0]), Ring()
    gone = weakref.ref(ring)
    now[0] = ASIDE_S
    garbage.tidy()
    del ring
    now[0] += ASIDE_S
    garbage.tidy()
    assert gone() is not None
    now[0] = ALL_S
    garbage.tidy()
    assert gone() is None
