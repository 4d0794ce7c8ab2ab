"""The Kubernetes API as plain HTTP and JSON, for the test kubelet and for the tests' own questions.

Why not the `kubernetes` package: a test starts a dozen kubelets, and importing that package costs each of them more CPU
than all else that it does.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class RestError(Exception):
    """The API server said no; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message[:500]}")
        self.status = status


class Rest:
    """One user of one API server; safe to use from several threads."""

    def __init__(self, server: str, token: str, ca: str) -> None:
        self.server, self._token, self._ca = server, token, ca
        parts = urlsplit(server)
        self.host, self.port = str(parts.hostname), int(parts.port or 443)
        self._context = ssl.create_default_context(cafile=ca)
        self._local = threading.local()

    @classmethod
    def of(cls, kubeconfig: str | Path) -> Rest:
        """From a kubeconfig written by `control_plane` (one cluster, one token)."""
        config = json.loads(Path(kubeconfig).read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        return cls(cluster["server"], config["users"][0]["user"]["token"], cluster["certificate-authority"])

    def get(self, path: str, **query: str) -> Any:
        return self._request("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._request("POST", path, body)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._request("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = STRATEGIC) -> Any:
        return self._request("PATCH", path, body, kind)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._request("DELETE", path, body)

    def find(self, path: str, **query: str) -> Any | None:
        """None where there is no such object."""
        try:
            return self.get(path, **query)
        except RestError as error:
            if error.status != 404:
                raise
            return None

    def watch(self, path: str, **query: str) -> Iterator[tuple[str, Any]]:
        """(type, object) from now on, first all that is there as ADDED; ends when the server ends it."""
        connection = self._connect(timeout=330)
        try:
            fields = urlencode({**query, "watch": "true", "timeoutSeconds": "300"})
            connection.request("GET", f"{path}?{fields}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status != 200:
                raise RestError(answer.status, answer.read().decode(errors="replace"))
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RestError(
                        int(event["object"].get("code", 500)), str(event["object"].get("message"))
                    )
                yield event["type"], event["object"]
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self._context)

    def _headers(self, kind: str = "application/json") -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"}

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Any:
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body)
        for last in (False, True):  # a connection that the server has closed meanwhile is opened once more
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._connect(timeout=300)
            try:
                connection.request(method, target, body=data, headers=self._headers(kind))
                answer = connection.getresponse()
                text = answer.read().decode()
                break
            except (http.client.HTTPException, OSError):
                connection.close()
                self._local.connection = None
                if last:
                    raise
        if answer.status >= 300:
            raise RestError(answer.status, text)
        return json.loads(text)
