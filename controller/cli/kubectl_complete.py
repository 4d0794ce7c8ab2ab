"""What kubectl asks when somebody completes `kubectl reprise`: the program `kubectl_complete-reprise` of the PATH.

It gives the words of the line, the last of which is begun, and takes one suggestion a line and then a directive.
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from reprise.controller.cli.app import main as commands
from reprise.controller.cli.target import PLUGIN

NO_FILES, DEFAULT = ":4", ":0"
"""Directives of cobra: no file names; what the shell does by itself, which is file names."""


def main() -> None:
    """Print the suggestions for the words of this call."""
    *before, begun = sys.argv[1:] or [""]
    found = ShellComplete(commands, {}, PLUGIN, "_").get_completions(before, begun)
    for item in found:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(DEFAULT if any(item.type in ("file", "dir") for item in found) else NO_FILES)
