"""What the API server has of one kind, kept up to date by a list and a watch: a dictionary in place of questions.

Why not kopf's indices: while they fill, every object waits for all others and each one that arrives wakes all that wait, so
thousands of Nodes and pods take time by their square; and every change of each is copied several times.  Here a page is
parsed, turned into views of a few fields, and let go.

Invariants: `synced` is set once everything that was there has been read, and not before.  What is told last counts: after
a watch that fell behind everything is read again, and what is not there any more is told as gone.  While the API server
does not answer, what was known stands.  Nothing ends the reading but the end of the operator: an error that nobody foresaw
is logged and everything is read again, an object that cannot be understood is logged and left out, and `turned` tells
whoever asks for this process's health that the thread is at work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.errors import ExpiredError, OperatorError

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
    """Objects of one kind in one place; `changed` is called from its thread with the view before and the view now."""

    def __init__(
        self, api: Api, path: str, view: Callable[[Mapping[str, Any]], V],
        changed: Callable[[V | None, V | None], None], clock: Callable[[], float] = time.monotonic, **query: str,
    ) -> None:  # fmt: skip
        self.path, self._clock = path, clock
        self._api, self._view, self._changed, self._query = api, view, changed, query
        self._known: dict[str, V] = {}
        self._left_out: set[str] = set()
        self.synced = threading.Event()
        self.answered = self.turned = clock()
        """By `clock`: the last answer of the API server, and the last time that anything came of asking, be it an error."""

    def run(self, stop: threading.Event) -> None:
        """Run until `stop`, and as long after it as a watch lasts."""
        failures = 0
        while not stop.is_set():
            try:
                version = self._list()
                self.synced.set()
                self._heard()
                while not stop.is_set():
                    version = self._watch(version, stop)
                    self._heard()
                    failures = 0
                continue
            except ExpiredError:
                log.info("event=watch-expired path=%s", self.path)
                continue
            except OperatorError as error:
                log.warning("event=not-watched path=%s reason=%r", self.path, str(error))
            except (
                Exception
            ):  # without this thread the operator would go by what it knew, and nobody would notice
                log.exception("event=watch-failed path=%s", self.path)
            self.turned = self._clock()
            stop.wait(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures += 1

    def _heard(self) -> None:
        self.answered = self.turned = self._clock()

    def _list(self) -> str:
        """Read everything; the version from which to watch."""
        version, found = "", set[str]()
        for page in self._api.pages(self.path, **self._query):
            self._heard()
            version = str(page["metadata"]["resourceVersion"])
            for item in page.get("items") or ():
                found.add(self._put(item))
        for uid in self._known.keys() - found:
            self._drop(uid)
        return version

    def _watch(self, version: str, stop: threading.Event) -> str:
        """The version up to which everything has been told when the watch ends.  Raises ExpiredError when the API server
        has forgotten what came after `version`."""
        for kind, item in self._api.watch(self.path, version, WATCH_S, **self._query):
            self._heard()
            version = str(item["metadata"]["resourceVersion"])
            if kind == "DELETED":
                self._drop(str(item["metadata"]["uid"]))
            elif kind != "BOOKMARK":
                self._put(item)
            if stop.is_set():
                break
        return version

    def _put(self, item: Mapping[str, Any]) -> str:
        """The object's uid.  One that cannot be understood stays as it was known, so that it hides no other."""
        try:
            now = self._view(item)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            return self._leave_out(item, error)
        before = self._known.get(now.uid)
        self._known[now.uid] = now
        if before != now:
            self._changed(before, now)
        return now.uid

    def _leave_out(self, item: Mapping[str, Any], error: Exception) -> str:
        meta = item.get("metadata") or {}
        uid = str(meta.get("uid", ""))
        if uid not in self._left_out:  # said once
            self._left_out.add(uid)
            name = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
            log.error("event=not-understood path=%s object=%s reason=%r", self.path, name, repr(error))
        return uid

    def _drop(self, uid: str) -> None:
        self._left_out.discard(uid)
        before = self._known.pop(uid, None)
        if before is not None:
            self._changed(before, None)
