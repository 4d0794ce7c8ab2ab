"""How many examples a property is shown."""

from __future__ import annotations

import pytest

from tests.support import examples as module


@pytest.mark.parametrize(
    ("share", "asked", "shown"), [(1.0, 80, 80), (0.25, 80, 20), (0.25, 15, 5), (0.5, 11, 6)]
)
def test_a_share_of_the_examples_is_shown_and_never_none(
    monkeypatch: pytest.MonkeyPatch, share: float, asked: int, shown: int
) -> None:
    monkeypatch.setattr(module, "SHARE", share)
    assert module.examples(asked).max_examples == shown
