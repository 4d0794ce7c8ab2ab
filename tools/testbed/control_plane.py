"""A real Kubernetes control plane on a loopback address: etcd, API server, controller manager, scheduler.

Invariant: nothing outlives the owner.  Every process carries the mark of the caller's process reaper
(`reprise.controller.local.cluster.process_reaper`), so an error half-way through the start, Ctrl-C or SIGKILL of the
owner ends them all.  The times are those of a cluster that is quick to give up on a node (12 s without a heartbeat),
so that tests see in seconds what takes minutes elsewhere.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from reprise.controller.agent.processes import Session, kill, members
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from tools.testbed import build
from tools.testbed.rest import Rest, RestError

START_S = 300.0
"""For each part; only one that hangs takes so long."""
NODE_GRACE_S = 12
"""Without a heartbeat for so long, a node is NotReady.  A starved machine must not look like a dead one; the project's own
heartbeats are quicker anyway."""
EVICTION_S = 60
"""So long after that its pods are marked for deletion.  Kubernetes' default is 300: the operator must not need it."""
CONTROLLERS = tuple(
    f"{name}-controller"
    for name in (
        "serviceaccount", "serviceaccount-token", "garbage-collector", "node-lifecycle", "taint-eviction",
        "pod-garbage-collector", "namespace", "deployment", "replicaset", "root-ca-certificate-publisher",
        "statefulset", "job", "endpointslice", "ttl-after-finished", "disruption", "persistentvolume-binder",
    )
)  # fmt: skip
_TOKENS = {
    "admin": "admin,admin,0,system:masters",
    "operator": "operator,operator,3,system:masters",  # the benchmark's, whose writes are counted by name
    "controllers": "controllers,system:kube-controller-manager,1",
    "scheduler": "scheduler,system:kube-scheduler,2",
}


class ControlPlane:
    """One control plane; its data and its address stay over restarts of single parts."""

    def __init__(self, reaper: ProcessReaper, folder: Path, host: str, api_flags: Sequence[str] = ()) -> None:
        self._reaper, self._folder, self._host, self._more = reaper, folder, host, tuple(api_flags)
        self._programs = build.ensure()
        self._running: dict[str, tuple[subprocess.Popen[bytes], Session]] = {}
        self._etcd, self._peer, self._port = addresses.free_ports(host, 3)

    def start(self, *, managers: bool = True) -> None:
        """Returns when pods can be created.  Without `managers` there are etcd and API server alone.  Raises StartError
        with the end of a log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_credentials()
        self.start_etcd()
        self.start_part("kube-apiserver")
        # the managers give up on an API server that is not healthy within half a minute, and on a busy machine it is not
        self.wait_ready()
        if not managers:
            return
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.start_part(name)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        launch.wait_until(
            lambda: self._answers(account), "default service account", START_S,
            process=self._running["kube-controller-manager"][0], log=self._folder / "kube-controller-manager.log",
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"https://{self._host}:{self._port}"

    @property
    def ca(self) -> Path:
        """Certificate authority of the API server."""
        return self._folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """Of the cluster's administrator."""
        return self._folder / "admin.kubeconfig"

    def rest(self) -> Rest:
        """As the administrator."""
        return Rest.of(self.kubeconfig)

    def start_etcd(self) -> None:
        url, peer = f"http://{self._host}:{self._etcd}", f"http://{self._host}:{self._peer}"
        self._spawn(
            "etcd", "--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync", "--listen-client-urls", url,
            "--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        )  # fmt: skip
        # an API server that finds no etcd backs off: waiting here is quicker
        launch.wait_until(
            lambda: launch.accepts(self._host, self._etcd), "etcd", START_S,
            process=self._running["etcd"][0], log=self._folder / "etcd.log",
        )  # fmt: skip

    def start_part(self, name: str) -> None:
        """Start one of the servers without waiting for it."""
        flags = {
            "kube-apiserver": self._api_flags,
            "kube-controller-manager": self._controller_flags,
            "kube-scheduler": self._scheduler_flags,
        }[name]
        self._spawn(name, *flags())

    def kill(self, name: str) -> None:
        """SIGKILL one part."""
        process, session = self._running.pop(name)
        kill(lambda: members([session]))
        process.wait()

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Until the API server says that it is ready."""
        process = self._running["kube-apiserver"][0]
        log = self._folder / "kube-apiserver.log"
        launch.wait_until(lambda: self._answers("/readyz"), "API server", timeout_s, process=process, log=log)

    def _answers(self, path: str) -> bool:
        try:
            self.rest().get(path)
        except json.JSONDecodeError:  # /readyz is text; an answer all the same
            return True
        except (RestError, OSError, http.client.HTTPException):
            return False
        return True

    def _spawn(self, name: str, *arguments: str) -> None:
        log = self._folder / f"{name}.log"
        command = [str(self._programs / name), *arguments]
        self._running[name] = launch.spawn(command, self._reaper.environment(), log)

    def _api_flags(self) -> list[str]:
        key, ca = str(self._folder / "ca.key"), str(self.ca)
        return [
            f"--etcd-servers=http://{self._host}:{self._etcd}", f"--bind-address={self._host}",
            f"--advertise-address={self._host}", f"--secure-port={self._port}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/16", f"--tls-cert-file={ca}", f"--tls-private-key-file={key}",
            f"--token-auth-file={self._folder / 'tokens.csv'}", "--authorization-mode=RBAC", "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--profiling=false",
            f"--default-not-ready-toleration-seconds={EVICTION_S}",
            f"--default-unreachable-toleration-seconds={EVICTION_S}", *self._more,
        ]  # fmt: skip

    def _controller_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self._folder / 'controllers.kubeconfig'}", "--leader-elect=false", "--secure-port=0",
            "--use-service-account-credentials", f"--service-account-private-key-file={self._folder / 'ca.key'}",
            f"--root-ca-file={self.ca}", "--node-monitor-period=1s", f"--node-monitor-grace-period={NODE_GRACE_S}s",
            "--profiling=false", f"--controllers={','.join(CONTROLLERS)}",
        ]  # fmt: skip

    def _scheduler_flags(self) -> list[str]:
        config = self._folder / "scheduler.kubeconfig"
        return [f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0", "--profiling=false"]

    def _write_credentials(self) -> None:
        """One key pair serves as certificate, as authority for clients and as key of the service account tokens."""
        if shutil.which("openssl") is None:
            raise build.BuildError(
                "openssl is needed for the control plane's certificate, and is not on the PATH"
            )
        names = f"subjectAltName=IP:{self._host},DNS:localhost,DNS:kubernetes.default.svc"
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=tests",
        ]
        where = ["-addext", names, "-keyout", str(self._folder / "ca.key"), "-out", str(self.ca)]
        subprocess.run([*command, *where], check=True, capture_output=True)
        (self._folder / "tokens.csv").write_text("\n".join(_TOKENS.values()) + "\n", encoding="utf-8")
        for name in _TOKENS:
            self.write_kubeconfig(self._folder / f"{name}.kubeconfig", name)

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """For the bearer of a token."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        }
        path.write_text(json.dumps(config), encoding="utf-8")
        return path
