"""Wishes of people and of agents: a folder with a znode for each, whose name says what it is about.

Each is written once and never changed: whoever wishes something else removes it and writes another one.  So who knows that
the folder has not changed knows all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.session import ZooKeeperSession

log = logging.getLogger("reprise.coordinator")

T = TypeVar("T")


@dataclass(slots=True)
class WishFolder(Generic[T]):
    """The wishes of one folder, read when some have come or gone; by one thread at a time.  `changed` is called by a thread
    of the client; `wait` gives the value of an answer, None where there is no such znode, and raises ClientError; `parse`
    raises RecordError: a wish that cannot be read is none."""

    client: ZooKeeperSession
    folder: str
    parse: Callable[[bytes, str], T]
    changed: Callable[[], None]
    wait: Callable[[Any], Any]
    _fresh: bool = False
    _known: Mapping[str, T] = field(default_factory=dict)

    def forget(self) -> None:
        """The session is another one, or may be."""
        self._fresh = False

    def read(self) -> Mapping[str, T]:
        """Wishes as they are now, by the name of their znode."""
        if self._fresh:
            return self._known
        self._fresh = True  # until the folder changes, be it while it is read
        try:
            found = self.wait(self.client.get_folder_async(self.folder, self._saw))
            if found is None:
                self._fresh = False
            answers = {
                name: self.client.get_async(f"{self.folder}/{name}") for name in (found or ((), None))[0]
            }
            read = {name: self.wait(answer) for name, answer in answers.items()}
        except BaseException:
            self._fresh = False
            raise
        wishes = {name: self._read(name, raw) for name, raw in read.items()}
        self._known = {name: wish for name, wish in wishes.items() if wish is not None}
        return self._known

    def _read(self, name: str, raw: Any) -> T | None:
        try:
            return None if raw is None else self.parse(raw[0], f"{self.folder}/{name}")
        except RecordError as error:
            log.warning("event=wish-ignored reason=%r", str(error))
            return None

    def _saw(self, _: Any) -> None:
        self._fresh = False
        self.changed()
