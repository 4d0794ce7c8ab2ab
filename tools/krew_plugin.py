"""The plugin `kubectl reprise` for Krew: an archive that it unpacks, and the manifest that leads to it.

A plugin is one small file of every platform, and what runs here is Python with packages that are built for each; so the
archive has the wheel and a launcher, which installs what the wheel needs when it is asked to (`kubectl reprise setup`) and
says so when it was not.  Krew takes an archive by its SHA-256 alone, so a manifest belongs to one archive.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

LAUNCHER = "tools/krew/kubectl-reprise"
SYSTEMS = ("linux", "darwin")
"""The launcher is a shell script."""
SUMMARY = "Look at Reprise topologies and act on them"
DESCRIPTION = """\
Streaming topologies on Spark come back query by query after many nodes were lost at once; this shows which queries
are down, why, and when they are back, and does what an operator of them does: approve a plan, drain a node, pause,
skip, take a savepoint, read logs.
"""
CAVEATS = """\
It runs on Python 3.11 to 3.13, with packages that are not in this plugin:
  kubectl reprise setup
installs them into a folder of their own, from the index of packages that pip uses (about 800 MB).
"""


def manifest(version: str, archive: Path, url: str) -> str:
    """The plugin manifest (Krew, v1alpha2) of an archive that will be found below `url`."""
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": list(SYSTEMS)}]},
        "uri": f"{url.rstrip('/')}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": Path(LAUNCHER).name,
    }
    document: dict[str, Any] = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "reprise"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": SUMMARY,
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [platform],
        },
    }
    return yaml.safe_dump(document, sort_keys=False, width=125)
