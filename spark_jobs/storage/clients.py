"""Which package reads and writes below a URL, and what to install where it is missing.

Problem: fsspec imports the client of a store when it is first asked for it, which is on a node after everything has been
started; there it is one trouble of many that pass.  So it is looked for where a topology is checked, and where a driver
begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import fsspec

_IS_SCHEME = re.compile("[a-z]+")
"""What fsspec takes for one in a chain where no `://` follows."""
DISTRIBUTION = "reprise-streams"
EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "azure"),
}
"""URL scheme -> extra of the distribution that brings its client."""
_CACHES = ("simplecache", "filecache", "blockcache", "cached")
"""Of fsspec: they keep what was read once, and answer with it after the file was replaced, by whomever."""


def missing_client(location: str) -> str:
    """Why nothing can be read or written at a location here, in one sentence; empty where it can, or nobody knows better."""
    return next((reason for scheme in schemes(location) if (reason := _missing(scheme))), "")


def keeps_copies(location: str) -> str:
    """Why what is read at a location may be what was there earlier, in one sentence; empty where it is not."""
    found = next((scheme for scheme in schemes(location) if scheme in _CACHES), "")
    return (
        found
        and f"{found}:: answers with copies of files that were replaced since: name the store without it"
    )


def schemes(location: str) -> Iterator[str]:
    """All of a chained URL, such as `simplecache::s3://bucket/x`; its last part may be a path."""
    for part in location.split("::"):
        scheme, mark, _ = part.partition("://")
        if mark or ("::" in location and _IS_SCHEME.fullmatch(part)):
            yield scheme


def _missing(scheme: str) -> str:
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        if scheme in EXTRAS:
            package = f"pip install '{DISTRIBUTION}[{EXTRAS[scheme]}]'"
            return f"URLs that begin with {scheme}:// need a package that is not installed here: {package}"
        return f"URLs that begin with {scheme}:// need a package that is not installed here: {' '.join(str(error).split())}"
    except ValueError:
        return f"no package that is installed here knows URLs that begin with {scheme}://"
    return ""
