"""A driver's first act where partitions outlive their driver (`recovery.driverGrace`): wait for the nodes that may have
some, and go on with what is there (`reprise.spark_jobs.engine.adoption`).

It is done before anything is reported: the first report says what goes on, and the coordinator decides on that.  Nothing
waits longer than the grace: by then a host that nobody has taken is gone.
"""

from __future__ import annotations

import logging
import threading

from reprise.controller.driver.channel import Channel
from reprise.controller.driver.loop import Cluster
from reprise.controller.driver.report import wanted
from reprise.controller.zookeeper.errors import RecordError
from reprise.scheduler.model import Desired
from reprise.spark_jobs.engine.adoption import SurveyError, adopt
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.platform import Platform

log = logging.getLogger("reprise.driver")
LOOK_S = 0.3
SAY_S = 3.0
"""How often people are told what is waited for; the record is of this moment, and may have been refused."""


def go_on_with_what_lives(
    engine: Engine, channel: Channel, cluster: Cluster, stop: threading.Event, platform: Platform
) -> None:
    """Adopt what the driver before has left; what comes of it is in the log and among the engine's problems."""
    grace_s = engine.resource.recovery.driver_grace_s
    desired = _desired(channel) if grace_s > 0 else None
    if desired is None or not desired.assignment:
        return
    until, reason, said = platform.elapsed() + grace_s, "", _Said(channel, platform)
    while not stop.is_set() and not channel.superseded:
        living = cluster.usable()
        awaited = (frozenset(desired.assignment.values()) & channel.read_nodes().keys()) - living.keys()
        late = platform.elapsed() >= until
        if awaited and not late:
            said.now_and_then(f"the driver waits for {_some(awaited)}, which may have partitions at work")
            channel.changed.wait(LOOK_S)
            channel.changed.clear()
            continue
        try:
            reason = adopt(engine, wanted(desired), living)
            break
        except SurveyError as error:
            reason = str(error)
            log.warning("event=not-surveyed epoch=%d reason=%r", engine.epoch, reason)
            if late:
                break
            said.now_and_then(
                f"the driver asks hosts what they have at work, and not all have answered: {reason}"
            )
            stop.wait(LOOK_S)
    channel.waits_for("")
    if reason:
        log.warning("event=not-adopted epoch=%d reason=%r", engine.epoch, reason)
        engine.problems.append(f"everything is restored from the newest checkpoint: {reason}")


class _Said:
    """What people are told."""

    def __init__(self, channel: Channel, platform: Platform) -> None:
        self._channel, self._platform = channel, platform
        self._last, self._again_at = "", 0.0

    def now_and_then(self, text: str) -> None:
        """Say it if it is new, or was said a while ago."""
        now = self._platform.elapsed()
        if text != self._last or now >= self._again_at:
            self._last, self._again_at = text, now + SAY_S
            self._channel.waits_for(text)


def _desired(channel: Channel) -> Desired | None:
    """What the driver before was to bring about."""
    try:
        return channel.read_desired()
    except RecordError as error:
        log.warning("event=not-adopted reason=%r", str(error))
        return None


def _some(nodes: frozenset[str]) -> str:
    names = sorted(nodes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more nodes" if len(names) > 3 else "")
