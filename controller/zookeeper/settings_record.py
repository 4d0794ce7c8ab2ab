"""`commands/settings`: the values of all fields that take effect in place, of one version of the topology, and who follows
them.

Written whole each time, so a reader has the settings of one version and never some of two.  What is in there that a reader
does not know, it leaves out (`reprise.spark_jobs.topology.changes.in_effect`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import ClientError, NoNodeError
from reprise.controller.zookeeper.fields import dumps, loads
from reprise.controller.zookeeper.session import SessionState, ZooKeeperSession
from reprise.controller.zookeeper.znode import check, pack
from reprise.spark_jobs.topology.changes import Settings

WHATEVER = -1
"""A version: these settings replace whatever is there."""


@dataclass(frozen=True, slots=True)
class SettingsOnRecord:
    """What `commands/settings` held at one moment."""

    settings: Settings | None = None
    """None: nobody has said anything, or what is there is no such record."""
    version: int | None = None
    """None: there is no record."""


def encode_settings(settings: Settings) -> bytes:
    return dumps({"settings": dict(settings)})


def parse_settings(raw: bytes, path: str = paths.SETTINGS) -> Settings:
    return loads(raw, path).mapping("settings", lambda _fields, _name, value: value)


def write_settings(
    session: ZooKeeperSession, root: str, settings: Settings, before: int | None = WHATEVER
) -> int:
    """Put these in the place of those that are there, with the rights of the records among which they stand; the version of
    the record then.

    `before`: version of the record that they follow, None: there was none.  BadVersionError, NodeExistsError: there is
    another one by now, which stays.  ClientError; TooLargeError.
    """
    path, data = f"{root}/{paths.SETTINGS}", pack(encode_settings(settings))
    check(path, data)
    if before is not None:
        try:
            return session.set_async(path, data, before).get().version
        except NoNodeError:
            pass
    session.create_below(root, paths.SETTINGS, data)
    return 0


class FollowedSettings:
    """The settings as they were heard last.  `changed` is called, by a thread of the client, when there may be others."""

    def __init__(self, session: ZooKeeperSession, root: str, changed: Callable[[], None]) -> None:
        self._session, self._path, self._changed = session, f"{root}/{paths.SETTINGS}", changed
        self._stale = True
        self._known: Settings | None = None

    def doubt(self) -> None:
        """The session is another one, or may be: they are read again."""
        self._stale = True

    def read(self) -> Settings | None:
        """What is to be followed now; None before anybody has said anything, the last known ones while ZooKeeper is away.
        ClientError, and then it is read again with the next call; RecordError for what is no such record, once."""
        if self._stale and self._session.state is SessionState.CONNECTED:
            self._stale = False
            try:
                found = self._session.exists(self._path, watch=self._saw)
                raw = None if found is None else self._session.get(self._path, watch=self._saw)[0]
            except NoNodeError:  # removed in between, of which the watch tells
                raw = None
            except ClientError:
                self._stale = True
                raise
            self._known = None if raw is None else parse_settings(raw, self._path)
        return self._known

    def _saw(self, _: object) -> None:
        self._stale = True
        self._changed()
