"""Options that several commands share, and values that click does not know."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import yaml

from reprise.spark_jobs.topology.quantity import parse_duration


class Duration(click.ParamType[float]):
    """`90`, `90s`, `1m30s`: seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; a bare number is seconds already."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return float(value) if value.replace(".", "", 1).isdigit() else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()

topology_option = click.option(
    "-f", "--file", required=True, type=click.Path(path_type=Path), help="A StreamTopology resource (YAML)."
)
out_option = click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run."
)


def parse_sets(texts: Iterable[str]) -> dict[str, Any]:
    """`path=value` pairs; values are YAML, so numbers are numbers."""
    found = {}
    for text in texts:
        path, mark, value = text.partition("=")
        if not mark or not path:
            raise click.BadParameter(f"{text!r} is not written PATH=VALUE", param_hint="--set")
        try:
            found[path] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise click.BadParameter(f"{path}: {value!r} is not YAML: {error}", param_hint="--set") from error
    return found
