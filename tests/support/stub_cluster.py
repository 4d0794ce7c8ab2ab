"""Paths answered with JSON over real HTTP: what stands where an API server, or the controller's page, would."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml


class StubCluster:
    """`answers`: bodies by path without query; a path that is not there is 404, one in `forbidden` 403."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.forbidden: set[str] = set()
        self.patches: list[tuple[str, Any]] = []
        self.conflicts = 0
        """So many patches are still to be refused, as the object is another one by now."""
        self.on_conflict: Callable[[], None] = lambda: None
        self.deleted: list[tuple[str, Any]] = []
        """Paths, and what was said of them."""
        self.methods: set[str] = set()
        self.tokens: dict[str, str] = {}
        """Header X-Reprise-Token by path, where it was shown."""
        self.url = ""

    def kubeconfig(self, folder: Path, namespace: str = "streams") -> Path:
        path = folder / "kubeconfig"
        cluster = {"name": "stub", "cluster": {"server": self.url}}
        context = {"cluster": "stub", "user": "me", "namespace": namespace}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "contexts": [{"name": "stub", "context": context}],
            "users": [{"name": "me", "user": {"token": "t0ken"}}],
            "current-context": "stub",
        }
        path.write_text(yaml.safe_dump(body))
        return path


@contextmanager
def stub_cluster(answers: dict[str, Any]) -> Iterator[StubCluster]:
    """Serves on a loopback port of its own."""
    stub = StubCluster(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.methods.add("GET")
            path = self.path.partition("?")[0]
            if shown := self.headers.get("X-Reprise-Token"):
                stub.tokens[path] = shown
            if path in stub.forbidden:
                self._send(403, {"message": "not allowed"})
            elif isinstance(stub.answers.get(path), str):
                self._plain(stub.answers[path])
            elif path in stub.answers:
                self._send(200, stub.answers[path])
            else:
                self._send(404, {"message": f"no {path}"})

        def do_PATCH(self) -> None:
            stub.methods.add("PATCH")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if stub.conflicts:
                stub.conflicts -= 1
                stub.on_conflict()
                self._send(409, {"message": "the object has been modified", "reason": "Conflict"})
                return
            stub.patches.append((self.path, body))
            self._send(200, body)

        def do_DELETE(self) -> None:
            stub.methods.add("DELETE")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            if path in stub.forbidden:
                self._send(403, {"message": "not allowed"})
                return
            stub.deleted.append((path, body))
            self._send(200, {})

        def _plain(self, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
