"""Settings that a running engine takes over between two jobs: when the next checkpoint is, how many are kept, what output is
kept for, and what queries are worth.

`Engine.resource` stays the one that its hosts were told: partitions, code and what hosts open follow from it.  Everything
that a setting changes is asked of the resource that is set here, all of one version of the topology.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reprise.spark_jobs.topology import StreamTopology, expand
from reprise.spark_jobs.topology.changes import Settings, in_effect

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine


def resource_in_effect(engine: Engine) -> StreamTopology:
    """The topology as the engine follows it now."""
    return engine.restore_point.resource


def take_settings(engine: Engine, settings: Settings) -> bool:
    """Follow these from now on; whether anything is another than before.  By the thread that runs jobs."""
    now, before = in_effect(engine.resource, settings), resource_in_effect(engine)
    if now.document == before.document:
        return False
    engine.restore_point.resource = engine.lines.resource = now
    engine.punctuations.policy = now.checkpoint
    if now.checkpoint != before.checkpoint:
        engine.lines.clocks.follow(now)
    engine.topology = replace(engine.topology, queries=expand(now).queries)
    return True
