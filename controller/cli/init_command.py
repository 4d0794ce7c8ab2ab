"""`reprise init`: a topology of one's own to begin with, with an operator and its test."""

from __future__ import annotations

from pathlib import Path

import click

from reprise.shipped import START


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
def command(folder: Path) -> None:
    """Write a commented topology, an operator of your own, its test and a Dockerfile for Kubernetes to FOLDER (by
    default this one).

    No file that is there already is touched: then nothing is written.

    \b
    Examples:
      reprise init
      reprise init words && cd words && reprise validate --try 5 && python -m pytest && reprise up --kill 2
    """
    files = sorted(path for path in START.iterdir() if path.is_file())
    if there := [path.name for path in files if (folder / path.name).exists()]:
        raise click.BadParameter(f"{folder} has {' and '.join(there)} already", param_hint="FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        (folder / path.name).write_bytes(path.read_bytes())
        click.echo(f"{folder / path.name} written")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {folder}; "
    click.echo(f"next: {enter}reprise validate --try 5; python -m pytest; reprise up --kill 2")
