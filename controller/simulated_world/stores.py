"""The modelled store below a topology's checkpoints and output: an object store that is slow, refuses, or loses its
answers.

A file appears whole, once, and only where its name is free if that is asked for; what is written is seen by everybody
at once, as with S3.  Each request takes its time, and others run meanwhile; so whoever is stopped or killed, is so
between two requests, or while one is on its way.  Reached as `world://<number of the store>/...` through fsspec, so
the code above it is the real one.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec import AbstractFileSystem

from reprise.controller.simulated_world.core import World

LATENCY_S = (0.001, 0.006)
SLOW_S = (0.3, 2.5)


class Store:
    """One store; `url`: where it begins."""

    _numbers = itertools.count(1)
    all: ClassVar[dict[str, Store]] = {}

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = str(next(self._numbers))
        self.url = f"world://{self.name}"
        self.files: dict[str, bytes] = {}
        self.slow = False
        self.refuses = 0.0
        """Share of requests that fail; of writes among these, half are carried out nevertheless."""
        self.full = False
        """Whether there is room for nothing more."""
        self.refused = ""
        """A part of paths: writes and removals of these fail, half of them being carried out."""
        self.refused_once = False
        """Whether that holds for the next one alone."""
        self.written: Callable[[str, bytes], None] = lambda _path, _data: None
        """Called with path and bytes of each file that appears or changes."""
        self.all[self.name] = self
        fsspec.register_implementation("world", WorldFileSystem, clobber=True)

    def close(self) -> None:
        del self.all[self.name]

    def below(self, folder: str) -> dict[str, bytes]:
        """Files by their path below a folder of the store."""
        start = f"{self.name}/{folder}/"
        return {p.removeprefix(start): data for p, data in self.files.items() if p.startswith(start)}

    def ask(self, verb: str, path: str) -> bool:
        """A request travels; raises OSError where it is refused.  True: it is to be carried out, and then to fail."""
        if self.world.closed or self.world.current is None:
            return False
        self.world.sleep(self.world.between(*(SLOW_S if self.slow else LATENCY_S)))
        if self.full and verb == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.refused and verb in ("write", "remove") and self.refused in path:
            self.refused = "" if self.refused_once else self.refused
            self.world.note(f"{path.partition('/')[2]} is refused, or its answer is lost")
            if self.world.dice.random() < 0.5:
                return True
            raise OSError(errno.EIO, f"the store refuses to {verb} this", path)
        if self.refuses and self.world.dice.random() < self.refuses:
            if verb in ("write", "remove") and self.world.dice.random() < 0.5:
                return True
            raise OSError(5, f"the store refuses to {verb}", path)
        return False

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = data
        self.written(path, data)


class WorldFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """What fsspec knows of the stores."""

    protocol = ("world", "memory")  # by the second name it is known as one that refuses a name that is taken
    cachable = True

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("world://").strip("/")

    def _store(self, path: str) -> Store:
        return Store.all[path.partition("/")[0]]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        path = self._strip_protocol(path)
        store = self._store(path)
        fails = store.ask("write", path)
        if mode == "create" and path in store.files:
            raise FileExistsError(path)
        store.put(path, bytes(value))
        if fails:
            raise OSError(5, "the store's answer was lost", path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        path = self._strip_protocol(path)
        store = self._store(path)
        store.ask("read", path)
        if path not in store.files:
            raise FileNotFoundError(path)
        return store.files[path][start:end]

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        store = self._store(path)
        store.ask("list", path)
        found = {
            f"{path}/{p[len(path) + 1 :].partition('/')[0]}" for p in store.files if p.startswith(f"{path}/")
        }
        if not found:
            raise FileNotFoundError(path)
        entries = [
            {"name": p, "size": len(store.files.get(p, b"")), "type": _type(store, p)} for p in sorted(found)
        ]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        store = self._store(path)
        store.ask("look for", path)
        if path not in store.files and not any(p.startswith(f"{path}/") for p in store.files):
            raise FileNotFoundError(path)
        return {"name": path, "size": len(store.files.get(path, b"")), "type": _type(store, path)}

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        path = self._strip_protocol(path)
        store = self._store(path)
        fails = store.ask("remove", path)
        gone = [p for p in store.files if p == path or (recursive and p.startswith(f"{path}/"))]
        if not gone:
            raise FileNotFoundError(path)
        for each in gone:
            del store.files[each]
        if fails:
            raise OSError(5, "the store's answer was lost", path)

    def rm_file(self, path: str) -> None:
        self.rm(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """There are no folders."""


def _type(store: Store, path: str) -> str:
    return "file" if path in store.files else "directory"
