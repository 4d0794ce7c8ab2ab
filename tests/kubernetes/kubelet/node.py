"""The node: its object, its heartbeat, and the pods that are bound to it."""

from __future__ import annotations

import contextlib
import http.client
import logging
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reprise.controller.local.cluster.addresses import HostPool
from tests.kubernetes.kubelet.images import Images
from tests.kubernetes.kubelet.pod import PodRunner, now
from tools.testbed.rest import MERGE, Rest, RestError

log = logging.getLogger("tests.kubelet")
HEARTBEAT_S = 1.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
    "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip


class Node:
    """One node; `run` never returns."""

    def __init__(
        self, api: Rest, name: str, prefix: str, images: Images, folder: Path, capacity: Mapping[str, str],
        labels: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._api, self.name, self._images, self._folder = api, name, images, folder
        self._addresses = HostPool(prefix)
        self._ip = self._addresses.take()
        self._capacity = {"pods": "110", "ephemeral-storage": "50Gi", **capacity}
        self._labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}
        self._pods: dict[str, tuple[PodRunner, str]] = {}

    def run(self) -> None:
        self._register()
        threading.Thread(target=self._heartbeat, daemon=True, name="heartbeat").start()
        log.info("event=ready node=%s ip=%s", self.name, self._ip)
        while True:
            try:
                for kind, pod in self._api.watch("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}"):
                    self._sync(kind, pod)
            except (RestError, OSError, http.client.HTTPException, ValueError) as error:
                log.warning("event=watch-ended error=%r", error)
                time.sleep(0.5)

    def _register(self) -> None:
        body = {"kind": "Node", "metadata": {"name": self.name, "labels": self._labels}, "spec": {}}
        try:
            self._api.post("/api/v1/nodes", body)
        except RestError as error:
            if error.status != 409:
                raise
        self._post_status()
        found = self._api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")
        for pod in found["items"]:  # what ran in an earlier life of this node died with it
            if pod["status"].get("phase") == "Running":
                path = (
                    f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
                )
                self._api.patch(path, {"status": {"phase": "Failed", "reason": "NodeRestarted"}})

    def _post_status(self) -> None:
        def condition(kind: str, status: str, reason: str) -> dict[str, str]:
            return {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": reason,
                "lastHeartbeatTime": now(),
            }

        pressures = [condition(f"{kind}Pressure", "False", "Enough") for kind in ("Memory", "Disk", "PID")]
        status = {
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "addresses": [
                {"type": "InternalIP", "address": self._ip},
                {"type": "Hostname", "address": self.name},
            ],
            "nodeInfo": dict.fromkeys(_INFO, "process"),
            "conditions": [condition("Ready", "True", "KubeletReady"), *pressures],
        }
        self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status})

    def _heartbeat(self) -> None:
        beats = 0
        while True:
            try:
                self._renew_lease()
                if beats % 5 == 0:
                    self._post_status()
                beats += 1
            except (RestError, OSError, http.client.HTTPException, ValueError) as error:
                log.warning("event=no-heartbeat error=%r", error)
            time.sleep(HEARTBEAT_S)

    def _renew_lease(self) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": moment}
        try:
            self._api.patch(f"{_LEASES}/{self.name}", {"spec": spec}, MERGE)
        except RestError as error:
            if error.status != 404:
                raise
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}}
            self._api.post(_LEASES, lease | {"spec": spec})

    def _sync(self, kind: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        known = self._pods.get(meta["uid"])
        if kind == "DELETED":
            if known is not None:
                known[0].stop(0)
                threading.Thread(target=self._forget, args=(meta["uid"],), daemon=True).start()
        elif meta.get("deletionTimestamp"):
            if known is not None and known[0].is_alive():
                known[0].stop(float(meta.get("deletionGracePeriodSeconds") or 0))
            else:  # it has ended, or was never ours to run
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                with contextlib.suppress(RestError):
                    self._api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
        elif known is None and pod["status"].get("phase") == "Pending":
            ip = self._addresses.take()
            runner = PodRunner(
                self._api, self._images, pod, self._folder / meta["name"] / meta["uid"], ip, self._ip
            )
            self._pods[meta["uid"]] = (runner, ip)
            runner.start()

    def _forget(self, uid: str) -> None:
        runner, ip = self._pods[uid]
        runner.join()
        del self._pods[uid]
        self._addresses.give_back(ip)
