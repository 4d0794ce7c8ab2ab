"""A topology on Kubernetes, as a laptop sees it: its resources, and the controller's page for the rest.

A laptop reaches the API server and not ZooKeeper.  So everything that needs more than the resources hold is asked from the
controller's read-only page, through the API server's proxy to its Service (which asks for `get` on `services/proxy` there),
or at `--url`, a port-forward for example.  The token that the page asks for is read from the Secret that its Service names,
with the rights of whoever runs the command, or from REPRISE_PAGE_TOKEN.  Nothing is guessed where neither answers: the
commands say what they lack.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
import urllib3

from reprise.controller.cli import exits
from reprise.controller.crd.convert import (
    APPROVED,
    DRAIN,
    SAVEPOINT,
    SKIP,
    TOPOLOGY_LABEL,
    drained_by_hand,
    savepoints_annotation,
    savepoints_by_hand,
    skips_annotation,
    skips_by_hand,
)
from reprise.controller.crd.crds import GROUP, VERSION
from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.budget import WriteBudget
from reprise.controller.kubernetes.errors import ConflictError, ForbiddenError, NotFoundError, OperatorError
from reprise.controller.kubernetes.kubeconfig import KubeconfigError, of_kubeconfig
from reprise.controller.kubernetes.pods import ROLE_LABEL
from reprise.controller.status import DocumentError, StatusDocument, observation, parse_document
from reprise.controller.web.login import HEADER
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import SkipWish
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import StreamTopology, from_json, from_object

if TYPE_CHECKING:  # `target` imports this module
    from reprise.controller.cli.target import Address

MANAGER = "reprise-cli"
"""Field manager of what is written here, so that nobody takes it for the operator's."""
PAGE_PORTS = ("page", "web", "http")
SELECTOR = "app.kubernetes.io/name=reprise"
TIMEOUT_S = 10.0
TRIES = 10
"""The object changes with every status that its operator writes."""


class PageError(exits.NotRunningError):
    """The controller's page could not be asked."""


class _NothingToChange(Exception):
    """The annotation is as it should be."""


@dataclass(slots=True)
class KubernetesTarget:
    """`topology` is the StreamTopology as the API server has it."""

    api: Api
    namespace: str
    topology: Mapping[str, Any]
    url: str | None = None
    _page: str | None = field(default=None)
    _token: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> KubernetesTarget:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @property
    def name(self) -> str:
        return str(self.topology["metadata"]["name"])

    def resource(self) -> StreamTopology:
        return from_object(dict(self.topology))

    def started_with(self) -> StreamTopology | None:
        """What its newest driver was started with, as the ConfigMap says that this reads; None where there is none.
        NotRunningError: it cannot be read."""
        selector = f"{TOPOLOGY_LABEL}={self.name},{ROLE_LABEL}=driver"
        try:
            found = self.api.list(collection(self.namespace, "configmaps"), labelSelector=selector)
            return from_json(found[0]["data"]["topology.json"]) if found else None
        except (OperatorError, SpecError, KeyError, TypeError) as error:
            raise exits.NotRunningError(
                f"what its driver was started with cannot be read: {error}"
            ) from error

    def document(self) -> StatusDocument:
        """Read it from the page; PageError says what to do where it cannot be asked."""
        value = self._ask("")
        try:
            return parse_document(value)
        except DocumentError as error:
            raise PageError(f"the controller's page: {error}; is it of another version?") from error

    def observation(self) -> Observation:
        value = self._ask("/records")
        try:
            return observation(json.dumps(value).encode(), "the controller's page")
        except RecordError as error:
            raise PageError(f"{error}; is it of another version?") from error

    def resources(self) -> dict[str, Any] | None:
        """The topology and what the controller wrote about it, newest first."""
        selector = f"{TOPOLOGY_LABEL}={self.name}"
        self.topology = self.api.get(self._path("streamtopologies") + f"/{self.name}")
        return {
            "topology": self.topology,
            "incidents": self._newest("incidents", selector, "openedAt"),
            "plans": self._newest("recoveryplans", selector, "time"),
        }

    def pause(self, paused: bool) -> str:
        path = f"{self._path('streamtopologies')}/{self.name}"
        self.api.merge(path, {"spec": {"paused": paused}})
        return f"spec.paused of {self.namespace}/{self.name} is {json.dumps(paused)}"

    def drain(self, node: str, wanted: bool) -> str:
        """An annotation of the topology, which its operator reads."""

        def changed(meta: Mapping[str, Any]) -> str | None:
            nodes = set(drained_by_hand(meta.get("annotations") or {}))
            return ",".join(sorted(nodes | {node} if wanted else nodes - {node})) or None

        return self._annotate(DRAIN, changed)

    def skip(self, query: str, wanted: bool) -> str:
        """An annotation of the topology, which its operator reads."""

        def changed(meta: Mapping[str, Any]) -> str | None:
            wishes = skips_by_hand(meta)
            asked = wishes.pop(query, None)
            if wanted:
                wishes[query] = SkipWish(f"{meta['uid']}.{uuid4().hex}")
            elif asked is None:
                raise _NothingToChange
            return skips_annotation(wishes)

        try:
            return self._annotate(SKIP, changed)
        except _NothingToChange:
            return f"{SKIP} of {self.namespace}/{self.name} does not ask for it"

    def savepoint(self, wish: SavepointWish) -> str:
        """An annotation of the topology, which its operator hands on to the driver; what was wanted of the same name before
        is wanted no longer."""

        def changed(meta: Mapping[str, Any]) -> str | None:
            others = [one for one in savepoints_by_hand(meta) if one.name != wish.name]
            return savepoints_annotation(str(meta["uid"]), [*others, wish])

        return self._annotate(SAVEPOINT, changed)

    def _annotate(self, key: str, changed: Callable[[Mapping[str, Any]], str | None]) -> str:
        """Write what follows from the topology's metadata; None: no such annotation.  By its version, so that of two who do
        so at once neither loses the other's wish."""
        path = f"{self._path('streamtopologies')}/{self.name}"
        for tries_left in reversed(range(TRIES + 1)):
            meta = self.api.get(path)["metadata"]
            value = changed(meta)
            body = {"annotations": {key: value}, "resourceVersion": meta["resourceVersion"]}
            try:
                self.api.merge(path, {"metadata": body})
                break
            except ConflictError:
                if not tries_left:
                    raise
        return f"{key} of {self.namespace}/{self.name} is {value or 'gone'}"

    def approve(self, plan: str | None) -> str:
        """Annotate the plan that is proposed; `plan`: which one that should be.  BadParameter where there is none, or
        another."""
        found = self._newest("recoveryplans", f"{TOPOLOGY_LABEL}={self.name}", "time")
        proposed = [
            p["metadata"]["name"] for p in found if (p.get("status") or {}).get("state") == "Proposed"
        ]
        if not proposed:
            raise click.BadParameter(
                f"no plan of {self.namespace}/{self.name} waits for an approval", param_hint="NAME"
            )
        if plan is not None and plan not in proposed:
            raise click.BadParameter(f"{plan!r} is not proposed; {proposed[0]} is", param_hint="--plan")
        name = plan or proposed[0]
        self.api.merge(
            f"{self._path('recoveryplans')}/{name}", {"metadata": {"annotations": {APPROVED: "true"}}}
        )
        return f"{APPROVED} of {self.namespace}/{name} is true"

    def restart(self) -> str:
        """Tell the driver's pod to end; what was told."""
        selector = f"{TOPOLOGY_LABEL}={self.name},{ROLE_LABEL}=driver"
        path = collection(self.namespace, "pods")
        pods = [p["metadata"] for p in self.api.list(path, labelSelector=selector)]
        if not pods:
            return f"{self.namespace}/{self.name} has no driver; the operator starts one"
        for meta in pods:
            self.api.delete(f"{path}/{meta['name']}", uid=meta["uid"])
        return f"{pods[0]['name']} is told to end; the operator starts another"

    def logs(self, role: str, lines: int) -> Iterator[tuple[str, str]]:
        """(pod, its last lines) of the topology's pods of a role, by name; where one cannot be read, why."""
        path = collection(self.namespace, "pods")
        selector = f"{TOPOLOGY_LABEL}={self.name},{ROLE_LABEL}={role}"
        for name in sorted(p["metadata"]["name"] for p in self.api.list(path, labelSelector=selector)):
            try:
                yield name, self.api.text(f"{path}/{name}/log?tailLines={lines}")
            except OperatorError as error:  # it has not started, or has just gone
                yield name, f"not read: {error}"

    def actions(self) -> list[str]:
        return []

    def is_over(self) -> bool:
        return False

    def files(self) -> dict[str, bytes]:
        """The resources, Events and pods of the topology; their logs stay with `kubectl logs`."""
        found = {"resources.json": json.dumps(self.resources(), indent=1).encode()}
        for kind, path in (
            ("events", collection(self.namespace, "events", "events.k8s.io")),
            ("pods", collection(self.namespace, "pods")),
        ):
            selector = {} if kind == "events" else {"labelSelector": f"{TOPOLOGY_LABEL}={self.name}"}
            try:
                entries = self.api.list(path, **selector)
            except OperatorError as error:
                found[f"{kind}.txt"] = f"not read: {error}\n".encode()
                continue
            found[f"{kind}.json"] = json.dumps(entries, indent=1).encode()
        return found

    # -- inside ------------------------------------------------------------------------------------------------------

    def _path(self, plural: str) -> str:
        return collection(self.namespace, plural, GROUP, VERSION)

    def _newest(self, plural: str, selector: str, by: str) -> list[Any]:
        found = self.api.list(self._path(plural), labelSelector=selector)
        return sorted(found, key=lambda item: str(item.get("spec", {}).get(by, "")), reverse=True)

    def _ask(self, more: str) -> Any:
        path = f"/api/v1/topologies/{self.namespace}/{self.name}{more}"
        if given := os.environ.get(TOKEN_VARIABLE):
            self._token = {HEADER: given}
        if self.url is not None:
            return _fetch(self.url.rstrip("/") + path, self._token)
        if self._page is None:
            self._page = self._find_page()
        try:
            return self.api.through(self._page + path, self._token)
        except NotFoundError as error:
            raise PageError(f"the controller's page has nothing for {path}: {error}") from error
        except OperatorError as error:
            raise PageError(f"the controller's page does not answer: {error}; {_ADVICE}") from error

    def _find_page(self) -> str:
        """The API server's proxy to the Service of the controller: in this namespace, else in any that may be seen."""
        for path in (collection(self.namespace, "services"), collection("", "services")):
            try:
                services = self.api.list(path, labelSelector=SELECTOR)
            except ForbiddenError:
                continue
            except OperatorError as error:
                raise PageError(str(error)) from error
            for service in services:
                for port in service.get("spec", {}).get("ports") or []:
                    if port.get("name") in PAGE_PORTS:
                        meta = service["metadata"]
                        self._read_token(meta)
                        base = collection(meta["namespace"], "services")
                        return f"{base}/{meta['name']}:{port['name']}/proxy"
        raise PageError(f"no Service with a controller's page was found; {_ADVICE}")

    def _read_token(self, service: Mapping[str, Any]) -> None:
        """Read it from the Secret that the page's Service names; without the right to, the page says what it lacks."""
        secret = (service.get("annotations") or {}).get(TOKEN_SECRET)
        if not secret or self._token:
            return
        with contextlib.suppress(OperatorError, KeyError, ValueError):
            found = self.api.get(f"{collection(service['namespace'], 'secrets')}/{secret}")
            self._token = {HEADER: base64.b64decode(found["data"]["token"]).decode().strip()}


TOKEN_VARIABLE = "REPRISE_PAGE_TOKEN"
TOKEN_SECRET = f"{GROUP}/page-token"
_ADVICE = (
    "give --url, e.g. of a `kubectl port-forward` to the operator, and the token of the page in "
    f"{TOKEN_VARIABLE} where you may not read its Secret"
)


def cluster_target(address: Address, elsewhere: str) -> KubernetesTarget:
    """The target of a command that is for Kubernetes alone.  UsageError, with what is so `elsewhere`, for another way."""
    if not address.on_cluster:
        raise click.UsageError(f"this is for NAME -n NAMESPACE on Kubernetes: {elsewhere}")
    target = address.open()
    assert isinstance(target, KubernetesTarget)
    return target


def of_cluster(address: Address) -> KubernetesTarget:
    """The named topology; without a name the only one of the namespace."""
    api, own = _connect(address)
    namespace = address.namespace or own
    path = collection(namespace, "streamtopologies", GROUP, VERSION)
    try:
        if address.name is not None:
            return KubernetesTarget(api, namespace, api.get(f"{path}/{address.name}"), address.url)
        found = api.list(path)
    except NotFoundError:
        raise exits.NotRunningError(f"no StreamTopology {namespace}/{address.name}") from None
    except OperatorError as error:
        raise exits.NotRunningError(str(error)) from error
    if len(found) != 1:
        names = ", ".join(item["metadata"]["name"] for item in found) or "none"
        raise click.UsageError(f"which topology? namespace {namespace} has {names}")
    return KubernetesTarget(api, namespace, found[0], address.url)


def listed(address: Address, everywhere: bool) -> list[Any]:
    """The topologies of the namespace, or of all; by namespace and name."""
    api, own = _connect(address)
    try:
        found = api.list(
            collection("" if everywhere else address.namespace or own, "streamtopologies", GROUP, VERSION)
        )
    except OperatorError as error:
        raise exits.NotRunningError(str(error)) from error
    return sorted(found, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"]))


def _connect(address: Address) -> tuple[Api, str]:
    """The API server of the kubeconfig, and the namespace of its context."""
    try:
        return of_kubeconfig(address.kubeconfig, address.context, WriteBudget(10, patient=True), MANAGER)
    except KubeconfigError as error:
        raise exits.NotRunningError(f"no cluster: {error}") from error


def _fetch(url: str, headers: Mapping[str, str]) -> Any:
    try:
        answer = urllib3.request(
            "GET", url, headers=dict(headers), timeout=TIMEOUT_S, retries=urllib3.Retry(1, redirect=0)
        )
        if answer.status != 200:
            raise PageError(f"{url}: {answer.status}: {answer.data[:200].decode(errors='replace')}")
        return answer.json()
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise PageError(f"{url}: {error}") from error
