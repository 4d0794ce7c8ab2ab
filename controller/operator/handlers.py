"""kopf's side: which objects there are, and one daemon for each StreamTopology that steps its controller.

Only indices, a daemon and the deletion handler: nothing reacts to a change by itself, a change only wakes the daemon
early.  kopf keeps its own state in annotations, as the status has a closed schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import kopf

from controller.operator.pods import ROLE_LABEL, Machine, PodView, machine_view, pod_view
from controller.operator.runtime import Runtime
from controller.operator.topology import Surroundings
from controller.resources.convert import TOPOLOGY_LABEL
from controller.resources.crds import GROUP, VERSION

FINALIZER = f"{GROUP}/finalizer"
RECORDS_S = 20.0
"""How long a deletion waits for ZooKeeper before the records are left behind."""
_WATCH_S = 60
_BACK_OFF_S = (1, 1, 2, 3, 5, 8, 13)
_OURS = {TOPOLOGY_LABEL: kopf.PRESENT, ROLE_LABEL: kopf.PRESENT}


def configure(settings: kopf.OperatorSettings) -> None:
    """kopf's settings: bounded watches, back-off, and no events of its own."""
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="last-seen")
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
    kopf.index("", "v1", "pods", labels=_OURS, id="pods", registry=registry)(handlers.pods)
    kopf.on.event("", "v1", "pods", labels=_OURS, registry=registry)(handlers.pod_changed)
    if runtime.settings.nodes:
        kopf.index("", "v1", "nodes", id="machines", registry=registry)(handlers.machines)
        kopf.on.event("", "v1", "nodes", registry=registry)(handlers.node_changed)
    kopf.daemon(*topologies, id="watch-over", registry=registry, cancellation_timeout=5.0)(
        handlers.watch_over
    )
    kopf.on.delete(*topologies, id="finalize", registry=registry, backoff=1.0)(handlers.delete)


class _Handlers:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ready: dict[str, object] = {}

    async def startup(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            self._runtime.beat = time.monotonic()
            await asyncio.sleep(1)

    async def pods(self, body: kopf.Body, **_: Any) -> dict[tuple[str, str], PodView]:
        view = pod_view(body)
        return {(view.namespace, view.topology): view}

    async def machines(self, body: kopf.Body, **_: Any) -> dict[str, Machine]:
        view = machine_view(body)
        return {view.name: view}

    async def pod_changed(self, body: kopf.Body, **_: Any) -> None:
        view = pod_view(body)
        self._runtime.wake(view.namespace, view.topology)

    async def node_changed(self, type: str | None, body: kopf.Body, **_: Any) -> None:
        """A heartbeat changes a Node every few seconds and is no news."""
        view = machine_view(body)
        news = None if type == "DELETED" else (view.ready, view.schedulable, view.taints)
        if self._ready.get(view.name, news) != news:
            for event in self._runtime.wakers.values():
                event.set()
        self._ready[view.name] = news

    async def watch_over(
        self, body: kopf.Body, stopped: kopf.DaemonStopped, namespace: str | None, name: str, **indices: Any
    ) -> None:
        """Steps the controller until the object is deleted or the operator ends."""
        runtime, loop = self._runtime, asyncio.get_running_loop()
        controller = runtime.controller(body)
        woken = runtime.wakers[(str(namespace), name)]
        while not stopped:
            woken.clear()
            found = {pod.name: pod for pod in indices["pods"].get((namespace, name), ())}
            pause = await loop.run_in_executor(
                runtime.pool, self._step, controller, dict(body), found, indices.get("machines")
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(_either(woken, stopped), pause)

    def _step(
        self, controller: Any, body: Mapping[str, Any], pods: Mapping[str, PodView], index: Any
    ) -> float:
        switches = self._runtime.switches()
        machines = None if index is None else {name: next(iter(store)) for name, store in index.items()}
        around = Surroundings(pods, machines, switches.paused, switches.recommend)
        return float(controller.step(body, around))

    async def delete(self, body: kopf.Body, namespace: str | None, name: str, uid: str, **_: Any) -> None:
        """Driver, executors and records go; then kopf takes its finalizer off."""
        runtime = self._runtime
        controller = runtime.controller(body)
        since = datetime.fromisoformat(body["metadata"]["deletionTimestamp"])
        waited = (datetime.now(UTC) - since).total_seconds()
        done = await asyncio.get_running_loop().run_in_executor(
            runtime.pool, controller.finalize, waited, RECORDS_S
        )
        if not done:
            raise kopf.TemporaryError("its pods or records are still there", delay=1.0)
        runtime.forget(uid, str(namespace), name)


async def _either(woken: asyncio.Event, stopped: kopf.DaemonStopped) -> None:
    tasks = {asyncio.ensure_future(woken.wait()), asyncio.ensure_future(stopped.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
