"""One container as a process: its environment, its mounts, its probes, its end."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprise.controller.agent import processes
from reprise.controller.agent.processes import Session
from reprise.controller.local.cluster.process_reaper import MARK
from tests.kubernetes.kubelet.images import Image
from tests.kubernetes.kubelet.volumes import field
from tools.testbed.rest import Rest

_MOUNT = "mkdir -p '{at}' && mount --bind '{what}' '{at}' && "
_WITHIN = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]


class Container:
    """`environment` is put together once; each start is a new process in a mount namespace and session of its own."""

    def __init__(
        self,
        api: Rest,
        pod: dict[str, Any],
        spec: dict[str, Any],
        image: Image,
        folder: Path,
        facts: dict[str, str],
    ) -> None:
        self.spec, self.name = spec, str(spec["name"])
        self._image, self._folder = image, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Session | None = None
        self.environment = {
            **_inherited(api, folder, pod),
            **image.environment,
            **_listed(api, pod, spec, facts),
        }

    def start(self, volumes: Mapping[str, str]) -> None:
        """Raises OSError or KeyError when it cannot be started."""
        command = self.spec.get("command") or list(self._image.entrypoint)
        arguments = self.spec.get("args") or ([] if self.spec.get("command") else list(self._image.command))
        argv = [expand(word, self.environment) for word in [*command, *arguments]]
        script = ""
        for mount in self.spec.get("volumeMounts", []):
            what, at = Path(volumes[mount["name"]]) / mount.get("subPath", ""), Path(mount["mountPath"])
            if _holds(at, self._folder):
                self.environment["TMPDIR"] = str(what)
            else:
                script += _MOUNT.format(at=at, what=what)
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_WITHIN, f'{script}exec "$@"', "sh", *argv],
                env=self.environment, cwd=self.spec.get("workingDir") or self._image.folder or self._folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._session = Session.of(self._process.pid)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + signal as containers report it."""
        code = None if self._process is None else self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def ask_to_end(self) -> None:
        """SIGTERM to the container's first process."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """SIGKILL to all that it has started."""
        if self._session is not None:
            session = self._session
            processes.kill(lambda: processes.members([session]))


def _holds(at: Path, folder: Path) -> bool:
    """The "image" is this environment and clone, and volumes are folders beside the pod's: what lies above them cannot be
    mounted over (it is /tmp, if at all)."""
    return any(Path(part).resolve().is_relative_to(at) for part in (sys.prefix, *sys.path, folder) if part)


def expand(text: str, environment: Mapping[str, str]) -> str:
    """$(NAME) as Kubernetes replaces it; unknown names stay."""
    return re.sub(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", lambda m: environment.get(m[1], m[0]), text)


def _inherited(api: Rest, folder: Path, pod: dict[str, Any]) -> dict[str, str]:
    """`MARK`: the owner's reaper must find every process."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HOSTNAME": pod["metadata"]["name"],
        "LANG": "C.UTF-8",
        "KUBERNETES_SERVICE_HOST": api.host,
        "KUBERNETES_SERVICE_PORT": str(api.port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(api.port),
        **({MARK: os.environ[MARK]} if MARK in os.environ else {}),
    }


def _listed(api: Rest, pod: dict[str, Any], spec: dict[str, Any], facts: dict[str, str]) -> dict[str, str]:
    base, found = f"/api/v1/namespaces/{pod['metadata']['namespace']}", dict[str, str]()
    for source in spec.get("envFrom", []):
        if "configMapRef" in source:
            found |= api.get(f"{base}/configmaps/{source['configMapRef']['name']}").get("data", {})
        if "secretRef" in source:
            data = api.get(f"{base}/secrets/{source['secretRef']['name']}").get("data", {})
            found |= {key: base64.b64decode(text).decode() for key, text in data.items()}
    for entry in spec.get("env", []):
        source = entry.get("valueFrom")
        if source is None:
            found[entry["name"]] = expand(entry.get("value", ""), found)
        elif "fieldRef" in source:
            found[entry["name"]] = field(pod, source["fieldRef"]["fieldPath"], facts)
        elif "configMapKeyRef" in source:
            ref = source["configMapKeyRef"]
            found[entry["name"]] = api.get(f"{base}/configmaps/{ref['name']}")["data"][ref["key"]]
        elif "secretKeyRef" in source:
            ref = source["secretKeyRef"]
            data = api.get(f"{base}/secrets/{ref['name']}")["data"][ref["key"]]
            found[entry["name"]] = base64.b64decode(data).decode()
    return found
