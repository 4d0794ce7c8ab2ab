"""`python docker/pin.py > docker/constraints.txt`: the versions of this environment of all that the image needs.

The closure of the project's own requirements and of the extra `demo`, which an image may have: what a developer has
tested with is what an image gets.
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HEADER = "# Versions in the image; made by `python docker/pin.py > docker/constraints.txt`.\n"


def closure(root: str) -> dict[str, str]:
    """Version of every distribution that `root` needs at run time, by canonical name."""
    found: dict[str, str] = {}
    todo = [(root, frozenset({"demo"}))]
    seen = set()
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        dist = distribution(name)
        found[canonicalize_name(name)] = dist.version
        for text in dist.requires or ():
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in (*extras, "")):
                todo.append((canonicalize_name(need.name), frozenset(need.extras)))
    found.pop(canonicalize_name(root))
    return found


if __name__ == "__main__":
    sys.stdout.write(HEADER)
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(closure("reprise").items()))
