"""A coordinator of its own process follows the topology's settings: it decides by the topology in effect.

The operator's coordinator does not need this: it is given each resource as the API server has it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.errors import ClientError, RecordError
from reprise.controller.zookeeper.settings_record import FollowedSettings
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.changes import Settings, in_effect

log = logging.getLogger("reprise.coordinator")


@dataclass(slots=True)
class SettingsFollower:
    """Keeps one coordinator at the newest settings, between its looks."""

    coordinator: Coordinator
    started: StreamTopology
    followed: FollowedSettings = field(init=False)
    _settings: Settings | None = None

    def __post_init__(self) -> None:
        store = self.coordinator.store
        self.followed = FollowedSettings(store.client, store.root, store.changed.set)
        store.client.add_listener(lambda _: self.followed.doubt())

    def refresh(self) -> None:
        """Take over what has changed.  What cannot be read is said, and what was known stands."""
        try:
            settings = self.followed.read()
        except (ClientError, RecordError) as error:
            log.warning("event=settings-not-read error=%r", str(error))
            return
        if settings is None or settings == self._settings:
            return
        self._settings = settings
        now, coordinator = in_effect(self.started, settings), self.coordinator
        before = coordinator.policy
        coordinator.store.follow(view_of(now), now.checkpoint.keep, now.paused)
        coordinator.policy = policy_of(now, before.settle_s, before.driver_grace_s)
        log.info("event=settings-followed topology=%s", now.name)
