"""The side of kopf: which objects there are, and one daemon for each StreamTopology that steps its controller.

Only a daemon and the deletion handler, and an event handler that wakes the daemon early: nothing reacts to a change by
itself.  Pods and machines come from `informer`, as there may be thousands.  kopf keeps the progress of a deletion in
annotations, as the status has a closed schema.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import kopf

from reprise.controller.crd.crds import GROUP, VERSION
from reprise.controller.kubernetes.errors import BudgetError, UnknownError
from reprise.controller.operator.interpreter import Garbage
from reprise.controller.operator.loop.runtime import Runtime
from reprise.controller.operator.loop.topology_loop import TopologyLoop

FINALIZER = f"{GROUP}/finalizer"
RECORDS_S = 20.0
"""How long a deletion waits for ZooKeeper before the records are left behind."""
PODS_KNOWN_S = 30.0
"""How long a deletion waits until the pods have been read; then it goes by what is known."""
FAILING_S = 300.0
"""A deletion that has failed in ways that nobody foresaw for so long takes its finalizer off all the same."""
log = logging.getLogger("reprise.operator")
KNOWN_S = 0.2
_WATCH_S = 60
_BACK_OFF_S = (1, 1, 2, 3, 5, 8, 13)


def configure(settings: kopf.OperatorSettings) -> None:
    """Set kopf up: bounded watches, back-off, and no events of its own."""
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = _NothingToCompare()
    settings.posting.enabled = False
    settings.watching.server_timeout = _WATCH_S
    settings.watching.client_timeout = _WATCH_S + 10
    settings.watching.connect_timeout = 5
    settings.networking.request_timeout = 15
    settings.networking.error_backoffs = _BACK_OFF_S
    settings.queueing.error_delays = _BACK_OFF_S
    settings.peering.standalone = True  # the Lease decides who works
    settings.scanning.disabled = True  # the kinds that are watched are known: no rights on CRDs are needed


def register(registry: kopf.OperatorRegistry, runtime: Runtime) -> None:
    """All handlers, bound to one runtime."""
    topologies = (GROUP, VERSION, "streamtopologies")
    handlers = _Handlers(runtime)
    kopf.on.login(registry=registry)(kopf.login_via_client)
    kopf.on.startup(registry=registry)(handlers.startup)
    kopf.on.event(*topologies, registry=registry)(handlers.topology_changed)
    kopf.daemon(*topologies, id="watch-over", registry=registry, cancellation_timeout=5.0)(
        handlers.watch_over
    )
    kopf.on.delete(*topologies, id="finalize", registry=registry, backoff=1.0)(handlers.delete)


class _NothingToCompare(kopf.DiffBaseStorage):
    """No handler asks what has changed: an annotation with the last state would be a write for each new spec."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return {}

    def store(self, **_: Any) -> None:
        return


class _Handlers:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._generations: dict[str, object] = {}
        self._deleting: dict[str, float] = {}
        """By uid: when this operator has seen the deletion first."""

    async def startup(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        self._runtime.watch()
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        garbage = Garbage()
        while True:
            self._runtime.beat = time.monotonic()
            if not self._runtime.burst.on:
                garbage.tidy()
            await asyncio.sleep(1)

    async def topology_changed(self, body: kopf.Body, namespace: str | None, name: str, **_: Any) -> None:
        """A new spec, or its deletion; the operator's own writes of the status are no news."""
        news = body["metadata"].get("generation"), body["metadata"].get("deletionTimestamp")
        if self._generations.get(body["metadata"]["uid"]) != news:
            self._generations[body["metadata"]["uid"]] = news
            self._runtime.wake((str(namespace), name))

    async def watch_over(
        self, body: kopf.Body, stopped: kopf.DaemonStopped, namespace: str | None, name: str, **_: Any
    ) -> None:
        """Looks at one topology until the object is deleted or the operator ends."""
        runtime, where = self._runtime, str(namespace)
        while not runtime.known and not stopped:  # of what is not known yet it would say that it is gone
            await stopped.wait(KNOWN_S)
        controller = runtime.controller(body)
        woken = runtime.wakers[(where, name)]
        await TopologyLoop(
            runtime, controller, woken, stopped, lambda: dict(body), lambda: runtime.cluster_view(where, name)
        ).run()

    async def delete(self, body: kopf.Body, namespace: str | None, name: str, uid: str, **_: Any) -> None:
        """Driver, executors and records go; then kopf takes its finalizer off, also where a step fails for ever."""
        runtime, where = self._runtime, str(namespace)
        controller = runtime.controller(body)
        since = self._deleting.setdefault(uid, time.monotonic())
        waited = time.monotonic() - since  # by this operator's clock: the API server's may differ
        if not runtime.known and waited < PODS_KNOWN_S:
            raise kopf.TemporaryError("its pods have not been read yet", delay=1.0)
        view = runtime.cluster_view(where, name)
        try:
            done = await asyncio.get_running_loop().run_in_executor(
                runtime.reconciling, controller.finalize, waited, RECORDS_S, view
            )
        except (
            BudgetError,
            UnknownError,
        ) as error:  # nothing can be taken off without the API server, either
            raise kopf.TemporaryError(str(error), delay=1.0) from error
        except Exception:
            log.exception("event=removal-failed topology=%s/%s", where, name)
            if waited < FAILING_S:
                raise
            done = True
        if not done:
            raise kopf.TemporaryError("its pods or records are still there", delay=1.0)
        runtime.forget(uid, where, name)
        self._generations.pop(uid, None)
        self._deleting.pop(uid, None)
