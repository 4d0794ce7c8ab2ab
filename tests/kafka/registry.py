"""A schema registry over HTTP: the part of Confluent's REST interface that writers and readers of Avro use.

Paths, bodies, status codes and error codes follow the API reference of Confluent's Schema Registry: registering a schema
under a subject, the same schema getting the same id again, and looking an id up.  It can be told to refuse or to stop.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTENT = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """Serves on a loopback port of its own while it is entered; `asked` counts look-ups by id."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.asked: Counter[int] = Counter()
        self.refusal: int | None = None
        """An HTTP status to answer everything with."""
        self.user: tuple[str, str] | None = None
        """Name and password of the only one who is answered; None: everybody is."""
        self.kind = "AVRO"
        """Of its schemas."""
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> SchemaRegistry:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def answer(
        self, method: str, path: list[str], body: bytes, authorization: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON of one request."""
        if self.user is not None:
            wanted = base64.b64encode(":".join(self.user).encode()).decode()
            if authorization != f"Basic {wanted}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.refusal is not None:
            return self.refusal, {"error_code": self.refusal, "message": "refused"}
        match method, path:
            case "POST", ["subjects", _, "versions"]:
                return 200, {"id": self._register(json.loads(body)["schema"])}
            case "GET", ["schemas", "ids", number] if number.isdigit():
                self.asked[int(number)] += 1
                if 1 <= int(number) <= len(self.schemas):
                    kind = {} if self.kind == "AVRO" else {"schemaType": self.kind}
                    return 200, {"schema": self.schemas[int(number) - 1], **kind}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, schema: str) -> int:
        with self._lock:
            if schema not in self.schemas:
                self.schemas.append(schema)
            return self.schemas.index(schema) + 1


def _handler(registry: SchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = self.path.partition("?")[0].strip("/").split("/")
            status, found = registry.answer(method, asked, body, self.headers.get("Authorization") or "")
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
