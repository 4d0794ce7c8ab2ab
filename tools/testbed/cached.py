"""Programs that tests fetch or build are kept outside the clone: in the user's cache, once a machine.

Invariant: a folder there is either complete or not there, whatever was killed and however many processes make it at once.
Standard library only: this runs before the virtual environment is there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def made_once(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `folder` when the block ends well, unless another process was faster."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}-part-", dir=folder.parent))
    try:
        part.chmod(0o755)
        yield part
        _adopt(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _adopt(part: Path, folder: Path) -> None:
    try:
        part.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
