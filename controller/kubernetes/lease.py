"""One operator at a time: a Lease that its holder renews and that others take when it is renewed no more.

Clocks of machines differ, so a candidate believes no time in the Lease: it waits until the Lease has not changed for
its whole duration by the candidate's own clock (as client-go does).  A holder that could not renew for three quarters of
the duration gives up before anybody may take over: one thread renews, and another one looks at the clock and at nothing
else, so that a request that hangs keeps nobody from giving up.  Even two operators at once do no harm to recoveries, which
ZooKeeper's versions guard; the Lease is there for quiet.  It is given back at an orderly end, so that a rolling update
hands over at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from reprise.controller.crd.convert import rfc3339
from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.errors import ConflictError, OperatorError, UnknownError

log = logging.getLogger("reprise.operator")
ANSWER_SHARE, RENEWALS, HELD_SHARE = 0.2, 4, 0.75
"""Of the duration: the longest wait for one answer; renewals in it; the part after which a holder gives up."""
WEB = "reprise.dev/web"
"""Annotation of the Lease: the URL of the holder's page."""


class Leadership:
    """The operator's hold on the Lease."""

    def __init__(
        self, api: Api, namespace: str, name: str, identity: str, duration_s: float,
        clock: Callable[[], float] = time.monotonic, web: str = "",
    ) -> None:  # fmt: skip
        """`api`: waits for an answer for ANSWER_SHARE of the duration at most.  `web`: URL of this operator's page, which
        the Lease tells the others; empty for none."""
        self._api, self._identity, self._duration, self._clock = api, identity, duration_s, clock
        self._folder = collection(namespace, "leases", "coordination.k8s.io")
        self._path, self._name = f"{self._folder}/{name}", name
        self._seen: tuple[Any, float] = (None, clock())
        self._renewed = clock()
        self._web = web
        self.web: str | None = None
        """Empty while this operator leads, else the URL of the page of the one that does; None when none is known."""

    def acquire(self, stop: threading.Event) -> bool:
        """Wait until this operator leads; False when told to stop first."""
        while not stop.is_set():
            try:
                if self._try():
                    log.info("event=leading identity=%s", self._identity)
                    return True
            except OperatorError as error:
                log.warning("event=lease-not-read reason=%r", str(error))
            stop.wait(self._duration / 8)
        return False

    def hold(self, stop: threading.Event, lost: Callable[[], None]) -> None:
        """Renew until told to stop, then give the Lease back; call `lost` as soon as it cannot be held."""
        renewing = threading.Thread(target=self._renew, args=(stop, lost), daemon=True, name="lease-renewals")
        renewing.start()
        if not self._guard(stop, lost):
            return
        renewing.join(self._duration / RENEWALS)
        self._give_back()

    def _renew(self, stop: threading.Event, lost: Callable[[], None]) -> None:
        """Runs in a thread of its own: it may wait for answers."""
        while not stop.wait(self._duration / RENEWALS):
            try:
                if not self._try():
                    log.error("event=lease-taken identity=%s", self._identity)
                    lost()
                    return
            except OperatorError as error:
                log.warning("event=lease-not-renewed reason=%r", str(error))
            except Exception:  # whatever it is, the guard ends this process when it lasts
                log.exception("event=lease-not-renewed")

    def _guard(self, stop: threading.Event, lost: Callable[[], None]) -> bool:
        """Waits for nothing but the clock; False when the Lease could not be held until `stop`."""
        while not stop.is_set():
            left = self._renewed + self._duration * HELD_SHARE - self._clock()
            if left <= 0:
                log.error("event=lease-lost identity=%s", self._identity)
                lost()
                return False
            stop.wait(left)
        return True

    def _try(self) -> bool:
        """Renew it if it is ours, take it if it is free; whether it is ours now."""
        began = self._clock()
        lease = self._api.find(self._path)
        try:
            if lease is None:
                self._api.create(self._folder, self._body({}))
            else:
                if not self._free(lease):
                    self.web = (lease["metadata"].get("annotations") or {}).get(WEB) or None
                    return False
                self._api.replace(self._path, self._body(lease))
        except ConflictError:  # somebody was faster
            return False
        self._renewed, self.web = began, ""
        return True

    def _free(self, lease: dict[str, Any]) -> bool:
        spec = lease.get("spec", {})
        holder, now = spec.get("holderIdentity"), self._clock()
        if holder == self._identity or not holder:
            return True
        state = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if state != self._seen[0]:
            self._seen = (state, now)
        return now - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._duration)

    def _body(self, old: dict[str, Any], holder: str | None = None) -> dict[str, Any]:
        holder = self._identity if holder is None else holder
        moment = rfc3339(time.time())
        spec = dict(old.get("spec", {}))
        if spec.get("holderIdentity") != holder:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
            spec["acquireTime"] = moment
        spec |= {
            "holderIdentity": holder,
            "renewTime": moment,
            "leaseDurationSeconds": max(1, round(self._duration)),
        }
        metadata = dict(old.get("metadata", {"name": self._name}))
        metadata["annotations"] = {**(metadata.get("annotations") or {}), WEB: self._web}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }

    def _give_back(self) -> None:
        try:
            lease = self._api.find(self._path)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                self._api.replace(self._path, self._body(lease, holder=""))
                log.info("event=lease-given-back identity=%s", self._identity)
        except (ConflictError, UnknownError) as error:
            log.warning("event=lease-not-given-back reason=%r", str(error))
