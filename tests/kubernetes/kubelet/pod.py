"""One pod from its first volume to its last process, and what the API server is told of it."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.kubernetes.kubelet.container import Container
from tests.kubernetes.kubelet.images import Images
from tests.kubernetes.kubelet.probes import Probe
from tests.kubernetes.kubelet.volumes import materialise
from tools.testbed.rest import Rest, RestError

LOOK_S = 0.1
_BACK_OFF_S = 30.0


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodRunner(threading.Thread):
    """Runs a pod to its end; a pod that cannot be started fails, and the node lives on."""

    def __init__(
        self, api: Rest, images: Images, pod: dict[str, Any], folder: Path, ip: str, host_ip: str
    ) -> None:
        super().__init__(daemon=True, name=pod["metadata"]["name"])
        self._api, self._images, self._folder, self._ip, self._host_ip = api, images, folder, ip, host_ip
        self.pod, self._spec = pod, pod["spec"]
        self._states: dict[str, dict[str, Any]] = {}
        self._restarts: dict[str, int] = {}
        self._containers: dict[str, Container] = {}
        self._probes: dict[str, dict[str, Probe]] = {}
        self._retry_at: dict[str, float] = {}
        self._since = now()
        self._told: Any = None
        self._ending = threading.Event()
        self._kill_at = float("inf")

    # -- from other threads ------------------------------------------------------------------------------------------

    def stop(self, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after `grace_s`; the pod's object is removed when nothing is left."""
        if not self._ending.is_set():
            self._kill_at = time.monotonic() + grace_s
            self._ending.set()
            for container in list(self._containers.values()):
                container.ask_to_end()
        elif grace_s == 0:
            self._kill_at = time.monotonic()

    # -- the pod's thread --------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            volumes = self._prepare()
            if self._run_init(volumes):
                self._start_all(volumes)
                self._follow(volumes)
        except Exception as error:  # a missing config map, image or program: as a failed pull or mount
            failed = {"terminated": {"exitCode": 128, "reason": "StartError", "message": repr(error)[:500]}}
            self._states = {c["name"]: failed for c in self._spec["containers"]}
        for container in self._containers.values():
            container.end()
        if self._ending.is_set():
            self._remove()
        else:
            good = all(s.get("terminated", {}).get("exitCode") == 0 for s in self._states.values())
            self._report("Succeeded" if good else "Failed")

    def _prepare(self) -> dict[str, str]:
        self._folder.mkdir(parents=True)
        self._facts = {"status.podIP": self._ip, "status.podIPs": self._ip, "status.hostIP": self._host_ip}
        volumes = self._folder / "volumes"
        return {
            v["name"]: materialise(self._api, self.pod, v, volumes / v["name"], self._facts)
            for v in self._spec.get("volumes", [])
        }

    def _run_init(self, volumes: dict[str, str]) -> bool:
        """One after the other; False when the pod was told to end meanwhile.  One that fails is tried again."""
        for spec in self._spec.get("initContainers", []):
            code = -1
            while code != 0 and not self._ending.is_set():
                container = self._make(spec)
                container.start(volumes)
                while (ended := container.exit_code) is None and not self._ending.wait(LOOK_S):
                    pass
                code = -1 if ended is None else ended
                if code and self._spec.get("restartPolicy") == "Never":
                    raise RuntimeError(f"init container {spec['name']} ended with {code}")
                if code:
                    self._ending.wait(1)
        return not self._ending.is_set()

    def _make(self, spec: dict[str, Any]) -> Container:
        image = self._images.find(spec["image"])
        container = Container(self._api, self.pod, spec, image, self._folder, self._facts)
        self._containers[container.name] = container
        return container

    def _start_all(self, volumes: dict[str, str]) -> None:
        for spec in self._spec["containers"]:
            container = self._make(spec)
            container.start(volumes)
            self._states[container.name] = {"running": {"startedAt": now()}}
            self._restarts[container.name] = 0
            kinds = ("startupProbe", "readinessProbe", "livenessProbe")
            self._probes[container.name] = {
                k: Probe(spec[k], container, self._ip) for k in kinds if k in spec
            }

    def _follow(self, volumes: dict[str, str]) -> None:
        while True:
            for name in self._states:
                self._look(name, volumes)
            if not any(
                "running" in s or ("waiting" in s and not self._ending.is_set())
                for s in self._states.values()
            ):
                return
            self._report("Running")
            if time.monotonic() > self._kill_at:
                for container in self._containers.values():
                    container.end()
            time.sleep(LOOK_S)

    def _look(self, name: str, volumes: dict[str, str]) -> None:
        container, state = self._containers[name], self._states[name]
        if "running" in state:
            code = container.exit_code
            if code is None:
                self._probe(name)
                return
            container.end()  # whatever it has left behind
            self._states[name] = self._ended(name, code, state["running"]["startedAt"])
        elif "waiting" in state and not self._ending.is_set() and time.monotonic() > self._retry_at[name]:
            self._restarts[name] += 1
            container.start(volumes)
            for probe in self._probes[name].values():
                probe.restart()
            self._states[name] = {"running": {"startedAt": now()}}

    def _ended(self, name: str, code: int, started: str) -> dict[str, Any]:
        policy = self._spec.get("restartPolicy", "Always")
        if not self._ending.is_set() and (policy == "Always" or (policy == "OnFailure" and code)):
            self._retry_at[name] = time.monotonic() + min(_BACK_OFF_S, 2.0 ** self._restarts[name])
            return {"waiting": {"reason": "CrashLoopBackOff", "message": f"ended with {code}"}}
        reason = "Completed" if code == 0 else "Error"
        return {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}}

    def _probe(self, name: str) -> None:
        probes = self._probes[name]
        if (startup := probes.get("startupProbe")) is not None and startup.passing is not True:
            startup.look()
            return
        for kind in ("readinessProbe", "livenessProbe"):
            if kind in probes:
                probes[kind].look()
        if (alive := probes.get("livenessProbe")) is not None and alive.passing is False:
            self._containers[name].end()

    # -- telling -----------------------------------------------------------------------------------------------------

    def _ready(self, name: str) -> bool:
        probes = self._probes.get(name, {})
        wanted = [probes[k] for k in ("startupProbe", "readinessProbe") if k in probes]
        return "running" in self._states[name] and all(probe.passing for probe in wanted)

    def _report(self, phase: str) -> None:
        """The pod's status, when it has changed."""
        ready = {name: phase == "Running" and self._ready(name) for name in self._states}
        everything = (phase, tuple(map(str, self._states.values())), tuple(ready.values()))
        if everything == self._told:
            return
        whole = "True" if ready and all(ready.values()) else "False"
        conditions = {"Initialized": "True", "ContainersReady": whole, "Ready": whole}
        status = {
            "phase": phase,
            "podIP": self._ip,
            "podIPs": [{"ip": self._ip}],
            "hostIP": self._host_ip,
            "startTime": self._since,
            "containerStatuses": [self._container_status(c, ready) for c in self._spec["containers"]],
            "conditions": [
                {"type": t, "status": s, "lastTransitionTime": now()} for t, s in conditions.items()
            ],
        }
        with contextlib.suppress(RestError):  # gone, or changed by somebody who knows better
            self._api.patch(f"{self._path()}/status", {"status": status})
            self._told = everything

    def _container_status(self, spec: dict[str, Any], ready: dict[str, bool]) -> dict[str, Any]:
        name = spec["name"]
        return {
            "name": name,
            "image": spec["image"],
            "imageID": f"process://{spec['image']}",
            "containerID": f"process://{self.pod['metadata']['uid']}/{name}",
            "ready": ready.get(name, False),
            "started": "running" in self._states.get(name, {}),
            "restartCount": self._restarts.get(name, 0),
            "state": self._states.get(name, {"waiting": {"reason": "PodInitializing"}}),
        }

    def _remove(self) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
        with contextlib.suppress(RestError):
            self._api.delete(self._path(), body)
        shutil.rmtree(self._folder / "volumes", ignore_errors=True)  # logs stay

    def _path(self) -> str:
        meta = self.pod["metadata"]
        return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
