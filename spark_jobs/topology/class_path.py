"""How resources name the library's classes: `reprise.operators:KeyedCount`.

A class of the library has been written in three ways: as `spark_jobs.operators:KeyedCount` before there was one import
root, as `reprise.spark_jobs.operators:KeyedCount` after that, and as `reprise.operators:KeyedCount` since there are public
modules, whose names stay while what is behind them is moved.  Resources, and what is kept of them below a checkpoint
location, live longer than a version, so all are read and mean the same class and the same revision.  Invariant: `current`,
`former` and `public` change only the spelling of this library's classes.
"""

from __future__ import annotations

ROOT = "reprise."
LIBRARY = f"{ROOT}spark_jobs."
"""Modules of this project, which are in every image."""
PUBLIC = {f"{ROOT}{name}": f"{LIBRARY}{name}" for name in ("contract", "kafka", "operators", "sources")}
"""Modules that are promised to stay, and where their classes are today."""
_FORMER = "spark_jobs."


def current(class_path: str) -> str:
    """The path of the module that the class is in today, `package.module:Class`."""
    module, colon, name = class_path.partition(":")
    if module in PUBLIC:
        return PUBLIC[module] + colon + name
    return ROOT + class_path if class_path.startswith(_FORMER) else class_path


def former(class_path: str) -> str:
    """The path as the first versions wrote it: what a revision is computed from, so that a stream keeps its revision."""
    path = current(class_path)
    return path.removeprefix(ROOT) if path.startswith(LIBRARY) else path


def public(class_path: str) -> str:
    """The path as it is written best: through a public module, where there is one for it."""
    module, colon, name = current(class_path).partition(":")
    known = {inner: outer for outer, inner in PUBLIC.items()}
    return known.get(module, module) + colon + name


def of_library(class_path: str) -> bool:
    """Whether a path, in any spelling, names a class of this project."""
    return current(class_path).startswith(LIBRARY)
