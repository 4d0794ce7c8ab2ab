"""`python -m tools.generate [--check]`: write what is generated from the models, or say what is old.

Files: `crds/<plural>.yaml`, the same in the chart (Helm installs what is in its `crds/`), `docs/reference.md`,
`docs/changes.md`, and what is made for Prometheus and Grafana: `docs/metrics.md`, `docs/alerts.md`, the rules
(`charts/reprise/rules`, `monitoring`) and the dashboards (`charts/reprise/dashboards`).  The chart's README is made of its
values and their schema.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from reprise.controller.crd.crds import KINDS, definition
from reprise.controller.observability import dashboards
from reprise.controller.observability.alerts import defaults
from tools import alerts_render as alerts
from tools import change_reference as changes
from tools import metrics_reference as metrics
from tools.chart_readme import readme
from tools.crd_reference import reference

ROOT = Path(__file__).parents[1]
HEADER = "# Generated from the models by `python -m tools.generate`; edits are lost.\n"


def outputs() -> dict[str, str]:
    """Text of every generated file by its path in the repository."""
    crds = {kind.plural: HEADER + _dump(definition(kind)) for kind in KINDS}
    folders = ("crds", "charts/reprise/crds")
    found = {f"{folder}/{name}.yaml": text for folder in folders for name, text in crds.items()}
    return found | {
        "docs/reference.md": reference(),
        "docs/changes.md": changes.reference(),
        "docs/metrics.md": metrics.reference(),
        "docs/alerts.md": alerts.reference(),
        "charts/reprise/README.md": readme(ROOT / "charts" / "reprise"),
        "charts/reprise/rules/alerts.yaml": alerts.template(),
        **{f"charts/reprise/dashboards/{name}": text for name, text in dashboards.files().items()},
        "monitoring/prometheus-rules.yaml": alerts.rules_file(defaults()),
    }


def stale(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Paths whose file is missing or differs."""
    return [path for path, text in wanted.items() if _read(root / path) != text]


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 with --check when a file is old."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is old")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(arguments)
    wanted = outputs()
    old = stale(options.root, wanted)
    for path in old:
        print(f"{path} is old" if options.check else f"wrote {path}")
        if not options.check:
            (options.root / path).parent.mkdir(parents=True, exist_ok=True)
            (options.root / path).write_text(wanted[path], encoding="utf-8")
    return 1 if old and options.check else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


class _Dumper(yaml.SafeDumper):
    """Without anchors: equal parts are written out, as `kubectl` shows them."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _dump(value: object) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)


if __name__ == "__main__":
    sys.exit(main())
