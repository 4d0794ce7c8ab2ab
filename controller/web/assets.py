"""The files of the page, read once: a request names one of them or nothing, so no path of the machine can be asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from reprise.controller.web.board import Rendered
from reprise.shipped import RUNBOOKS

TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


@dataclass(frozen=True, slots=True)
class Asset:
    content: Rendered
    kind: str


@cache
def assets() -> Mapping[str, Asset]:
    """The files by their path below `static/`."""
    return dict(_read(resources.files("reprise.controller.web") / "static", ""))


@cache
def runbooks() -> Mapping[str, Asset]:
    """The runbooks of the alerts by the name of their file, as plain text: `runbook_url` of an alert leads here."""
    return {
        path.name: Asset(Rendered.of_bytes(path.read_bytes()), TYPES["txt"]) for path in RUNBOOKS.glob("*.md")
    }


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        elif (kind := TYPES.get(entry.name.rpartition(".")[2])) is not None:
            yield prefix + entry.name, Asset(Rendered.of_bytes(entry.read_bytes()), kind)
