"""A local or mounted file system: names that appear whole, folders and bytes that are on disk, and what a folder holds now.

What holds for a file is said in `reprise.spark_jobs.storage.files`, which alone uses this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""What file systems answer that know no hard links."""
_NO_EXCLUSIVE_RENAME = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What file systems and kernels answer that know no RENAME_NOREPLACE."""
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
"""Linux, renameat2(2)."""
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}
"""What file systems answer that cannot flush a folder."""


def link(part: Path, final: Path) -> bool:
    """Give the bytes their name unless it is taken; whether they have it.  Two writers at the same moment may both have it
    where `creates_exclusively` does not hold; then the later one has replaced the other."""
    if (ours := _link_exclusively(part, final)) is None:
        part.rename(final)
        return True
    return ours


def creates_exclusively(folder: Path) -> bool:
    """Whether the file system of a folder refuses a name that another writer takes at the same moment."""
    make_folders(folder)
    part, final = (folder / f"{time.time():.0f}-{uuid.uuid4().hex}.part" for _ in range(2))
    try:
        part.touch(exist_ok=False)
        return _link_exclusively(part, final) is not None
    finally:
        for each in (part, final):
            each.unlink(missing_ok=True)


def _link_exclusively(part: Path, final: Path) -> bool | None:
    """A hard link, or a rename that the kernel refuses where the name is taken; whether it was made.  None: the file system
    has neither."""
    try:
        os.link(part, final)
    except FileExistsError:  # by us, if the answer to an earlier attempt over a network was lost
        return part.samefile(final)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False if is_taken(final) else _rename_exclusively(part, final)
    return True


def _rename_exclusively(part: Path, final: Path) -> bool | None:
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return None
    names = os.fsencode(part), os.fsencode(final)
    if library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCLUSIVE_RENAME:
        return None
    if number == errno.EEXIST:
        return False
    raise OSError(number, os.strerror(number), str(part), None, str(final))


def is_taken(path: Path) -> bool:
    """Whether there is a name; trouble is raised, where `Path.exists` would say that there is none."""
    with suppress(FileNotFoundError):
        path.lstat()
        return True
    return False


def rename(part: Path, final: Path) -> bool:
    """Give the bytes their name, whoever had it."""
    part.replace(final)
    return True


def make_folders(folder: Path) -> None:
    """The folder and its parents, each durable in the one above."""
    missing = [p for p in (folder, *folder.parents) if not p.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        flush(made.parent)


def flush(path: Path) -> None:
    """Bytes of a file with its name, or the names in a folder, onto the disk."""
    for each in (path,) if path.is_dir() else (path, path.parent):
        number = os.open(each, os.O_RDONLY)
        try:
            os.fsync(number)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC or not each.is_dir():
                raise
        finally:
            os.close(number)


def look_again(folder: Path) -> None:
    """Make a client of a network file system ask its server what is in a folder: it does where it has written itself."""
    probe = folder / f".{uuid.uuid4().hex}.look"
    with suppress(OSError):  # a folder that is read-only, or full, is listed all the same
        probe.touch(exist_ok=False)
        probe.unlink()
