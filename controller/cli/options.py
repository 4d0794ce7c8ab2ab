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

HERE = Path("topology.yaml")


def _or_here(context: click.Context, option: click.Parameter, value: Path | None) -> Path:
    if value is None and not HERE.is_file() and not context.resilient_parsing:
        raise click.UsageError(f"which topology? give -f FILE; there is no {HERE} in this folder", context)
    return value or HERE


topology_option = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    callback=_or_here,
    help=f"A StreamTopology resource (YAML or JSON; - is standard input); by default {HERE} in this folder.",
)
sets_option = click.option(
    "--set", "sets", multiple=True, metavar="PATH=VALUE", help="Another value in the spec (repeatable)."
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
