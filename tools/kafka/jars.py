"""The jars of a Kafka broker: fetched once from a Maven repository, checked by SHA-256, kept in the user's cache.

Why not a dependency: no package on PyPI carries a broker.  Why these jars alone: the others that a broker needs
(Scala, Jackson, log4j, compression) are in the pyspark wheel.  Invariant: a jar whose bytes are not those of its lock
file is never put on a class path.  `REPRISE_MAVEN_REPOSITORY` names another repository, for machines that reach a mirror
only.
"""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from reprise.controller.errors import StartError
from reprise.controller.local.cluster.class_archive import cache_dir

REPOSITORY = "https://repo.maven.apache.org/maven2"
"""Maven Central's public address."""
REPOSITORY_VARIABLE = "REPRISE_MAVEN_REPOSITORY"
_TIMEOUT_S = 60.0
_TRIES = 3

Progress = Callable[[str], None]

LOCKS = Path(__file__).parent
"""Where `<name>_jars.lock` files are: a line a jar, its SHA-256 and its path in the repository."""


def jar_folder(name: str, progress: Progress = lambda _: None, locks: Path = LOCKS) -> Path:
    """The folder that holds the jars of a lock file and no others.  StartError names the one that cannot be had."""
    text = (locks / f"{name}_jars.lock").read_text(encoding="utf-8")
    locked = [line for line in text.splitlines() if line and not line.startswith("#")]
    folder = cache_dir() / "jars" / f"{name}-{hashlib.sha256(chr(10).join(locked).encode()).hexdigest()[:12]}"
    wanted = [line.split(" ", 1) for line in locked]
    missing = [(sha, path) for sha, path in wanted if not (folder / Path(path).name).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        progress(f"fetching {len(missing)} jars for {name}, once for this machine")
    for sha, path in missing:
        target = folder / Path(path).name
        part = target.with_name(f".{target.name}.{os.getpid()}")
        part.write_bytes(_checked(path, sha))
        part.replace(target)
    return folder


def _checked(path: str, sha: str) -> bytes:
    data = _fetch(path)
    found = hashlib.sha256(data).hexdigest()
    if found != sha:
        raise StartError(f"{path}: the repository's file has SHA-256 {found}, expected {sha}")
    return data


def _fetch(path: str) -> bytes:
    repository = os.environ.get(REPOSITORY_VARIABLE, REPOSITORY).rstrip("/")
    reason = ""
    for _ in range(_TRIES):
        try:
            with urllib.request.urlopen(f"{repository}/{path}", timeout=_TIMEOUT_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise StartError(f"{path}: the Maven repository answers {error.code} {error.reason}") from error
        except OSError as error:
            reason = str(error)
    raise StartError(
        f"{path}: the Maven repository cannot be reached ({reason}); {REPOSITORY_VARIABLE} names another"
    )
