"""An API server that remembers what it was told: for the logic that decides what to tell it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from reprise.controller.kubernetes.errors import BudgetError, ConflictError, NotFoundError, UnknownError


class FakeApi:
    """`calls` holds (verb, path, body) of every write; `away` makes every request fail."""

    def __init__(self, objects: Mapping[str, Any] | None = None) -> None:
        self.objects: dict[str, Any] = dict(objects or {})
        self.calls: list[tuple[str, str, Any]] = []
        self.away = False
        self.spent = False
        """No write is let through."""

    def at(self, _urgency: object) -> FakeApi:
        return self

    @property
    def affordable(self) -> bool:
        return not self.spent

    def find(self, path: str) -> Any | None:
        self._answer()
        return copy.deepcopy(self.objects.get(path))

    def list(self, path: str, **query: str) -> list[Any]:
        """Objects of a folder that have the labels of `labelSelector`."""
        self._answer()
        pairs = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
        below = [o for where, o in self.objects.items() if where.rpartition("/")[0] == path]
        return [
            copy.deepcopy(o)
            for o in below
            if all((o["metadata"].get("labels") or {}).get(k) == v for k, v in pairs)
        ]

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        whole = f"{path}/{body['metadata']['name']}"
        self._write("create", whole, body)
        if whole in self.objects:
            raise ConflictError(409, whole)
        self.objects[whole] = self._stored(body, 1)
        return self.objects[whole]

    def replace(self, path: str, body: Mapping[str, Any]) -> Any:
        self._write("replace", path, body)
        if path not in self.objects:
            raise NotFoundError(404, path)
        now = self.objects[path]["metadata"].get("resourceVersion")
        if body["metadata"].get("resourceVersion") != now:
            raise ConflictError(409, path)
        self.objects[path] = self._stored(body, int(now) + 1)
        return self.objects[path]

    def apply(self, path: str, body: Mapping[str, Any]) -> Any:
        self._write("apply", path, body)
        return body

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        self._write("patch", path, body)
        return body

    def delete(self, path: str, uid: str | None = None, grace_s: int | None = None) -> None:
        self._write("delete", path, {"uid": uid, "grace_s": grace_s})
        self.objects.pop(path, None)

    def verbs(self, part: str = "") -> list[str]:
        """Of the writes to paths that contain `part`, in order."""
        return [verb for verb, path, _ in self.calls if part in path]

    def _answer(self) -> None:
        if self.away:
            raise UnknownError("no answer")

    def _write(self, verb: str, path: str, body: Any) -> None:
        self._answer()
        if self.spent:
            raise BudgetError("spent")
        self.calls.append((verb, path, copy.deepcopy(body)))

    @staticmethod
    def _stored(body: Mapping[str, Any], version: int) -> dict[str, Any]:
        found = copy.deepcopy(dict(body))
        found["metadata"] = {**found["metadata"], "resourceVersion": str(version)}
        return found
