"""How resources name the library's classes: `reprise.spark_jobs.operators:KeyedCount`.

Before there was one import root they were written without it, `spark_jobs.operators:KeyedCount`.  Resources, and what is
kept of them below a checkpoint location, live longer than a version, so both are read and mean the same class and the
same revision.  Invariant: `current` and `former` change only the spelling of this library's classes.
"""

from __future__ import annotations

ROOT = "reprise."
LIBRARY = f"{ROOT}spark_jobs."
"""Modules of this project, which are in every image."""
_FORMER = "spark_jobs."


def current(class_path: str) -> str:
    """The path with today's import root, `package.module:Class`."""
    return ROOT + class_path if class_path.startswith(_FORMER) else class_path


def former(class_path: str) -> str:
    """The path as earlier versions wrote it: what a revision is computed from, so that a stream keeps its revision."""
    return class_path.removeprefix(ROOT) if class_path.startswith(LIBRARY) else class_path


def of_library(class_path: str) -> bool:
    """Whether a path, in either spelling, names a class of this project."""
    return current(class_path).startswith(LIBRARY)
