"""A bundle for a bug report: one tar.gz with a list of what is in it, and nothing secret.

Everything passes the redactor; nothing is added to the archive by another way.  The file is readable by its owner only, as
who sends it should look into it first.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reprise.controller.cli.redact import Redactor
from reprise.controller.errors import ReportError
from reprise.controller.private_file import write_private

LISTING = "CONTENTS.txt"


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    size: int
    redacted: int
    """Places that were blackened."""


def write_bundle(path: Path, files: Mapping[str, bytes], redactor: Redactor, time: float) -> list[Entry]:
    """What is in it, the listing aside.  ReportError when it cannot be written; never overwrites."""
    entries, cleaned = [], {}
    for name, data in sorted(files.items()):
        before = redactor.count
        cleaned[name] = redactor.content(name, data)
        entries.append(Entry(name, len(cleaned[name]), redactor.count - before))
    cleaned = {LISTING: _listing(entries, cleaned).encode(), **cleaned}
    archive = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, data in cleaned.items():
            info = tarfile.TarInfo(f"reprise-report/{name}")
            info.size, info.mtime, info.mode = len(data), int(time), 0o600
            tar.addfile(info, io.BytesIO(data))
    try:
        write_private(path, archive.getvalue())
    except OSError as error:
        raise ReportError(f"{path}: not written: {error.strerror}") from error
    return entries


def _listing(entries: list[Entry], files: Mapping[str, bytes]) -> str:
    lines = ["Redacted places are marked (redacted). Look through this before you send it.", ""]
    for entry in entries:
        digest = hashlib.sha256(files[entry.name]).hexdigest()[:16]
        lines.append(f"{entry.size:>10}  {entry.redacted:>4} redacted  {digest}  {entry.name}")
    return "\n".join(lines) + "\n"
