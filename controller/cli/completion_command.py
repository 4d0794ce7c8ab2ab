"""`reprise completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      reprise completion bash > ~/.local/share/bash-completion/completions/reprise
      reprise completion zsh > "${fpath[1]}/_reprise"
      reprise completion fish > ~/.config/fish/completions/reprise.fish
    """
    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None  # one of the three
    click.echo(kind(root.command, {}, "reprise", "_REPRISE_COMPLETE").source())
