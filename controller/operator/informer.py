"""What the API server has of one kind, kept up to date by a list and a watch: a dictionary in place of questions.

Why not kopf's indices: while they fill, every object waits for all others and each one that arrives wakes all that wait, so
thousands of Nodes and pods take time by their square; and every change of each is copied several times.  Here a page is
parsed, turned into views of a few fields, and let go.

Invariants: `synced` is set once everything that was there has been read, and not before.  What is told last counts: after
a watch that fell behind everything is read again, and what is not there any more is told as gone.  While the API server
does not answer, what was known stands.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from controller.operator.api import Api
from controller.operator.errors import ExpiredError, OperatorError

log = logging.getLogger("reprise.operator")
WATCH_S = 60
"""Bound of one watch: a connection that has died without a word is noticed then."""
BACK_OFF_S = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0)


class Named(Protocol):
    """A view of an object."""

    @property
    def uid(self) -> str: ...


V = TypeVar("V", bound=Named)


class Informer(Generic[V]):
    """Of one kind in one place; `changed` is called from its thread with the view before and the view now."""

    def __init__(
        self, api: Api, path: str, view: Callable[[Mapping[str, Any]], V],
        changed: Callable[[V | None, V | None], None], **query: str,
    ) -> None:  # fmt: skip
        self._api, self._path, self._view, self._changed, self._query = api, path, view, changed, query
        self._known: dict[str, V] = {}
        self.synced = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Until `stop`, and as long after it as a watch lasts."""
        failures = 0
        while not stop.is_set():
            try:
                version = self._list()
                self.synced.set()
                while not stop.is_set():
                    version = self._watch(version, stop)
                    failures = 0
            except ExpiredError:
                log.info("event=watch-expired path=%s", self._path)
            except OperatorError as error:
                log.warning("event=not-watched path=%s reason=%r", self._path, str(error))
                stop.wait(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
                failures += 1

    def _list(self) -> str:
        """Read everything; the version from which to watch."""
        version, found = "", set[str]()
        for page in self._api.pages(self._path, **self._query):
            version = str(page["metadata"]["resourceVersion"])
            for item in page.get("items") or ():
                found.add(self._put(item))
        for uid in self._known.keys() - found:
            self._drop(uid)
        return version

    def _watch(self, version: str, stop: threading.Event) -> str:
        """The version up to which everything has been told when the watch ends.  Raises ExpiredError when the API server
        has forgotten what came after `version`."""
        for kind, item in self._api.watch(self._path, version, WATCH_S, **self._query):
            version = str(item["metadata"]["resourceVersion"])
            if kind == "DELETED":
                self._drop(str(item["metadata"]["uid"]))
            elif kind != "BOOKMARK":
                self._put(item)
            if stop.is_set():
                break
        return version

    def _put(self, item: Mapping[str, Any]) -> str:
        now = self._view(item)
        before = self._known.get(now.uid)
        self._known[now.uid] = now
        if before != now:
            self._changed(before, now)
        return now.uid

    def _drop(self, uid: str) -> None:
        before = self._known.pop(uid, None)
        if before is not None:
            self._changed(before, None)
