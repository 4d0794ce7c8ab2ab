"""A job of the chain that is cancelled."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.spark_jobs.engine.chain import CANCEL_S, Chain, ChainError


def test_a_job_that_is_submitted_after_it_was_cancelled_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it is waited for, though a node of it is gone."""
    ended, asked = threading.Event(), list[str]()

    def cancel(group: str) -> None:
        asked.append(group)
        if len(asked) == 3:  # Spark knows the job by now
            ended.set()

    chain: Any = Chain.__new__(Chain)
    chain._context = SimpleNamespace(cancelJobGroup=cancel)
    monkeypatch.setattr(Chain, "_collect", lambda *_: ended.wait(60.0))
    cancelled = threading.Event()
    cancelled.set()
    began = time.monotonic()
    with pytest.raises(ChainError, match="cancelled: a node was lost"):
        chain.run((1, 1), [], 1, cancelled, 60.0)
    assert len(asked) == 3
    assert time.monotonic() - began < CANCEL_S
