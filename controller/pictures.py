"""Pictures as files whose bytes follow from what is drawn."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

matplotlib.rcParams["svg.hashsalt"] = "reprise"
"""Else matplotlib draws ids of SVG at random."""


def save(figure: Figure, path: Path, dpi: int = 100) -> None:
    """Write an SVG or a PNG, by the suffix, without the time of day."""
    figure.savefig(path, dpi=dpi, metadata={"Date": None} if path.suffix == ".svg" else None)
