"""The API server as a set of plain requests with typed refusals, bounded times and a budget of writes.

Why not the generated client: objects here are JSON that pure functions make and read, and a server-side apply is one
PATCH; the generated classes would be translated to and fro.  Credentials do come from the `kubernetes` package, which
knows kubeconfigs, service account tokens and their renewal.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import Configuration

from reprise.controller.kubernetes.budget import Urgency, WriteBudget
from reprise.controller.kubernetes.errors import (
    ApiError,
    BudgetError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    OperatorError,
    UnknownError,
)

FIELD_MANAGER = "reprise-operator"
"""Who the API server says has written a field, unless a client is told otherwise."""
CONNECT_S, TIMEOUT_S = 3.0, 10.0
_PAGE = 500
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_REASONS = {
    NotFoundError: "not_found",
    ConflictError: "conflict",
    ForbiddenError: "forbidden",
    InvalidError: "invalid",
    UnknownError: "unknown",
}
_REFUSALS = {
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
}


def collection(namespace: str, plural: str, group: str = "", version: str = "v1") -> str:
    """Path of the objects of a kind; `namespace` empty for all of them, or for kinds without namespaces."""
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"


class Api:
    """One service account; safe to use from several threads.  Writes raise BudgetError where too many have been made."""

    def __init__(
        self,
        budget: WriteBudget,
        configuration: Configuration | None = None,
        manager: str = FIELD_MANAGER,
        answer_s: float | None = None,
    ) -> None:
        """`manager`: whose fields those are that are written.  `answer_s`: where a late answer is worth nothing, the longest
        wait for one, without a second try."""
        if configuration is None:
            configuration = Configuration()
            config.load_config(client_configuration=configuration)
        self._configuration, self._budget, self._urgency = configuration, budget, Urgency.ACT
        self._manager, self._answer_s = manager, answer_s
        self.refused: Counter[str] = Counter()
        """Requests that failed, by reason; `not_found` and `conflict` are answers that the operator reckons with."""
        self._pool = urllib3.PoolManager(
            maxsize=16,
            ca_certs=configuration.ssl_ca_cert,
            cert_file=configuration.cert_file,
            key_file=configuration.key_file,
            cert_reqs="CERT_REQUIRED" if configuration.verify_ssl else "CERT_NONE",
        )

    def at(self, urgency: Urgency) -> Api:
        """The same, for writes of that urgency."""
        found = copy.copy(self)
        found._urgency = urgency
        return found

    @property
    def affordable(self) -> bool:
        """Whether a write would be let through now."""
        return self._budget.allows(self._urgency)

    def get(self, path: str) -> Any:
        """The object.  Raises NotFoundError, UnknownError, ..."""
        return self._send("GET", path)

    def text(self, path: str) -> str:
        """What is no JSON: the log of a pod.  Raises as `get` does."""
        answer = self._request("GET", path, headers={"Accept": "application/json, */*"})
        if answer.status >= 300:
            _read("GET", path, answer.status, answer.data)
        return str(answer.data.decode(errors="replace"))

    def through(self, path: str, headers: Mapping[str, str]) -> Any:
        """JSON of what is behind the API server's proxy, asked with `headers` of its own."""
        answer = self._request("GET", path, headers=headers)
        return _read("GET", path, answer.status, answer.data)

    def find(self, path: str) -> Any | None:
        """The object, None where there is none."""
        try:
            return self.get(path)
        except NotFoundError:
            return None

    def pages(self, path: str, **query: str) -> Iterator[Any]:
        """All objects of a kind, in lists of at most `_PAGE`; each carries the version of them all."""
        more: str | None = ""
        while more is not None:
            fields = {**query, "limit": str(_PAGE), **({"continue": more} if more else {})}
            page = self._send("GET", f"{path}?{urlencode(fields)}")
            yield page
            more = page.get("metadata", {}).get("continue") or None

    def list(self, path: str, **query: str) -> list[Any]:
        """All objects of a kind at once."""
        return [item for page in self.pages(path, **query) for item in page.get("items") or ()]

    def watch(self, path: str, version: str, seconds: int, **query: str) -> Iterator[tuple[str, Any]]:
        """(type, object) after `version`, for so long.  Raises ExpiredError when the API server does not remember it."""
        fields = {
            **query, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
        }  # fmt: skip
        answer = self._request("GET", f"{path}?{urlencode(fields)}", read_s=seconds + TIMEOUT_S, stream=True)
        try:
            if answer.status >= 300:
                _read("GET", path, answer.status, answer.read())
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refusal("WATCH", path, int(event["object"].get("code", 500)), event["object"])
                yield event["type"], event["object"]
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise UnknownError(f"WATCH {path}: {error}") from error
        finally:
            answer.close()

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Raises ConflictError when it is there already."""
        return self._send("POST", f"{path}?fieldManager={self._manager}", body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Any:
        """Raises ConflictError when its resourceVersion is not the newest."""
        return self._send("PUT", f"{path}?fieldManager={self._manager}", body)

    def apply(self, path: str, body: Mapping[str, Any]) -> Any:
        """Server-side apply: the fields of `body`, and no others, are the operator's."""
        return self._send("PATCH", f"{path}?fieldManager={self._manager}&force=true", body, _APPLY)

    def merge(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge patch."""
        return self._send("PATCH", f"{path}?fieldManager={self._manager}", body, _MERGE)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Strategic merge patch, for built-in kinds."""
        return self._send("PATCH", f"{path}?fieldManager={self._manager}", body, _STRATEGIC)

    def delete(self, path: str, uid: str | None = None, grace_s: int | None = None) -> None:
        """Nothing if it is gone, or is another object of that name."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self._send("DELETE", path, body)
        except (NotFoundError, ConflictError):
            return

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "") -> Any:
        if method != "GET":
            self._budget.take(self._urgency)  # what is not sent is no failed request
        try:
            return self._ask(method, path, body, kind)
        except BudgetError:
            raise  # nothing was asked
        except OperatorError as error:
            self.refused[_reason(error)] += 1
            raise

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Any:
        answer = self._request(method, path, body, kind)
        return _read(method, path, answer.status, answer.data)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "",
        read_s: float = TIMEOUT_S, stream: bool = False, headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:  # fmt: skip
        headers = {
            "Accept": "application/json",
            "Content-Type": kind or "application/json",
            **(headers or {}),
        }
        timeout, retries = urllib3.Timeout(connect=CONNECT_S, read=read_s), urllib3.Retry(1, redirect=0)
        if self._answer_s is not None:
            timeout = urllib3.Timeout(total=self._answer_s)
        if method != "GET" or self._answer_s is not None:
            retries = urllib3.Retry(total=0)
        for auth in self._configuration.auth_settings().values():
            headers[str(auth["key"])] = str(auth["value"])
        try:
            return self._pool.request(
                method,
                self._configuration.host + path,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=timeout,
                retries=retries,
                preload_content=not stream,
            )
        except urllib3.exceptions.HTTPError as error:
            raise UnknownError(f"{method} {path}: {error}") from error


def _reason(error: OperatorError) -> str:
    """The reason in the words of the metrics."""
    return next((name for kind, name in _REASONS.items() if isinstance(error, kind)), "other")


def _read(method: str, path: str, status: int, data: bytes) -> Any:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise UnknownError(f"{method} {path}: {status}, not JSON") from error
    if status < 300:
        return value
    raise _refusal(method, path, status, value)


def _refusal(method: str, path: str, status: int, value: Any) -> OperatorError:
    message = str(value.get("message", "")) if isinstance(value, dict) else ""
    if status in (429, 500, 502, 503, 504):
        return UnknownError(f"{method} {path}: {status}: {message}")
    return _REFUSALS.get(status, ApiError)(status, f"{method} {path.partition('?')[0]}: {message}")
