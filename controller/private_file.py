"""Files with secrets."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Make a file that only this user can read, from its first byte on.  FileExistsError: one of the name is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
