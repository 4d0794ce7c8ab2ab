"""What an image is to a kubelet without containers: a command, an environment and a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Image:
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None


class Images:
    """By prefix of the name, the longest that fits; KeyError when none does, as a pull would fail."""

    def __init__(self, images: Mapping[str, Image]) -> None:
        self._images = dict(images)

    @classmethod
    def read(cls, path: Path) -> Images:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            {
                name: Image(i.get("entrypoint", ()), i.get("cmd", ()), i.get("env", {}), i.get("workdir"))
                for name, i in raw.items()
            }
        )

    def find(self, name: str) -> Image:
        fitting = [prefix for prefix in self._images if name.startswith(prefix)]
        if not fitting:
            raise KeyError(f"no image for {name!r}")
        return self._images[max(fitting, key=len)]
