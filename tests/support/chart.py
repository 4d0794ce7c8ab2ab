"""The chart through the real helm, as parsed objects."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.testbed import clients

CHART = Path(__file__).parents[2] / "charts" / "reprise"
RELEASE, NAMESPACE = "rec", "streams"


class HelmError(Exception):
    """What helm said."""


def helm(*arguments: str) -> str:
    """Standard output; HelmError with standard error."""
    command = [str(clients.ensure() / "helm"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise HelmError(done.stderr)
    return done.stdout


@cache
def _template(values: str) -> tuple[Any, ...]:
    text = helm(
        "template", RELEASE, str(CHART), "--namespace", NAMESPACE, *values.split("\x00") * bool(values)
    )
    return tuple(one for one in yaml.safe_load_all(text) if one)


def render(**values: str) -> list[dict[str, Any]]:
    """Objects for `--set` values, written with two underscores for a dot: `watch__allNamespaces="true"`."""
    if not any(key.startswith("watch__") for key in values):
        values["watch__allowOwnNamespace"] = "true"  # the one choice without which nothing is rendered
    words = [w for key, value in values.items() for w in ("--set", f"{key.replace('__', '.')}={value}")]
    return list(_template("\x00".join(words)))


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The only object of this kind and name."""
    (found,) = [o for o in of_kind(objects, kind) if o["metadata"]["name"] == name]
    return found


def pod_specs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of everything that makes pods."""
    specs = [o["spec"] for o in of_kind(objects, "Pod")]
    return specs + [
        o["spec"]["template"]["spec"] for k in ("Deployment", "StatefulSet") for o in of_kind(objects, k)
    ]


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """Plain variables of a container."""
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}
