"""A schema registry over HTTP: the part of Confluent's REST interface that writers and readers use.

Paths, bodies, status codes and error codes follow the API reference of Confluent's Schema Registry: registering a schema
under a subject, the same schema getting the same id again, looking an id up, and versions of a subject, which those that ask
for deleted ones are given although the subject is marked as such.  Protobuf is kept as
it was registered, which is how Confluent's client for Python does it, and given only to who asks for that form.  It can be
told to refuse or to stop.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTENT = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """Serves on a loopback port of its own while it is entered; `asked` counts look-ups by id."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.more: dict[int, dict[str, Any]] = {}
        """Kind and references by id, where they were said."""
        self.subjects: dict[str, list[int]] = {}
        self.asked: Counter[int] = Counter()
        self.refusal: int | None = None
        """An HTTP status to answer everything with."""
        self.refuse_versions: int | None = None
        """An HTTP status to answer with who asks for a version of a subject."""
        self.deleted: set[str] = set()
        """Subjects that are marked as deleted."""
        self.knows_form = True
        """Whether it gives a schema in another form than it was registered in, to who asks for that."""
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
        self,
        method: str,
        path: list[str],
        body: bytes,
        authorization: str = "",
        form: str = "",
        deleted: bool = False,
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON of one request."""
        if self.user is not None:
            wanted = base64.b64encode(":".join(self.user).encode()).decode()
            if authorization != f"Basic {wanted}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.refusal is not None:
            return self.refusal, {"error_code": self.refusal, "message": "refused"}
        if self.refuse_versions is not None and (method, path[0]) == ("GET", "subjects"):
            return self.refuse_versions, {"error_code": self.refuse_versions, "message": "refused"}
        if path[0] == "subjects" and method == "GET" and path[1] in self.deleted and not deleted:
            return 404, {"error_code": 40401, "message": f"Subject '{path[1]}' not found."}
        found = self._found(method, path, body, form if self.knows_form else "")
        return (404, {"error_code": 404, "message": "HTTP 404 Not Found"}) if found is None else found

    def _found(
        self, method: str, path: list[str], body: bytes, form: str
    ) -> tuple[int, dict[str, Any]] | None:
        match method, path:
            case "POST", ["subjects", subject, "versions"]:
                return 200, self._register(subject, json.loads(body))
            case "POST", ["subjects", subject]:
                number = self.schemas.index(json.loads(body)["schema"]) + 1
                return 200, self._of(subject, number, form)
            case "GET", ["subjects", subject, "versions", version] if subject in self.subjects:
                return 200, self._of(subject, self.subjects[subject][int(version) - 1], form)
            case "GET", ["schemas", "ids", number] if number.isdigit():
                self.asked[int(number)] += 1
                if 1 <= int(number) <= len(self.schemas):
                    return 200, self._schema(int(number), form)
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return None

    def _schema(self, number: int, form: str) -> dict[str, Any]:
        kind = {} if self.kind == "AVRO" else {"schemaType": self.kind}
        found = {"schema": self.schemas[number - 1], **kind, **self.more.get(number, {})}
        if found.get("schemaType") == "PROTOBUF" and form != "serialized":
            found["schema"] = 'syntax = "proto3";'
        return found

    def _of(self, subject: str, number: int, form: str) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {"subject": subject, "version": version, "id": number, **self._schema(number, form)}

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if body["schema"] not in self.schemas:
                self.schemas.append(body["schema"])
            number = self.schemas.index(body["schema"]) + 1
            self.more[number] = {name: body[name] for name in ("schemaType", "references") if body.get(name)}
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
        return self._of(subject, number, "serialized")


def _handler(registry: SchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            asked = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
            given = dict(urllib.parse.parse_qsl(query))
            status, found = registry.answer(
                *(method, asked, body, self.headers.get("Authorization") or ""),
                *(given.get("format", ""), given.get("deleted") == "true"),
            )
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
