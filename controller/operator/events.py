"""Kubernetes Events: what happened to an object, with a reason for programs and a sentence for people.

One Event object a (object, reason, message): said again, it counts up, so that a loop cannot flood the namespace.
An Event that cannot be written is lost: nothing depends on one.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.operator.api import Api, collection
from controller.operator.errors import OperatorError
from controller.operator.settings import FIELD_MANAGER
from controller.resources.convert import cut, rfc3339

log = logging.getLogger("reprise.operator")
AGAIN_S = 30.0
"""The same is said again no sooner than this."""


@dataclass(slots=True)
class Events:
    """Of one object."""

    api: Api
    namespace: str
    about: Mapping[str, Any]
    """apiVersion, kind, name, uid."""
    _said: dict[str, tuple[float, int, str]] = field(default_factory=dict)

    def say(self, reason: str, message: str, *, warning: bool = False) -> None:
        """`reason` is one CamelCase word."""
        digest = hashlib.sha256(f"{self.about['uid']} {reason} {message}".encode()).hexdigest()[:16]
        now = time.time()
        last, count, first = self._said.get(digest, (0.0, 0, rfc3339(now)))
        if now - last < AGAIN_S:
            return
        if len(self._said) > 1000:
            self._said.clear()
        self._said[digest] = (now, count + 1, first)
        log.info("event=said object=%s reason=%s message=%r", self.about["name"], reason, message)
        name = f"{self.about['name']}.{digest}"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": {**self.about, "namespace": self.namespace},
            "reason": reason,
            "message": cut(message, 1000),
            "type": "Warning" if warning else "Normal",
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "firstTimestamp": first[:19] + "Z",
            "lastTimestamp": rfc3339(now)[:19] + "Z",
            "count": count + 1,
        }
        try:
            self.api.apply(f"{collection(self.namespace, 'events')}/{name}", body)
        except OperatorError as error:
            log.warning("event=not-said reason=%r", str(error))
