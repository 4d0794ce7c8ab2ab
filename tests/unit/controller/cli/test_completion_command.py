"""`reprise completion`: a script for each shell that asks it, and names that are completed where they are asked."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from reprise.controller.cli import arguments
from reprise.controller.cli.complete import topologies
from reprise.controller.cli.completion_command import command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_this_program_by_the_name_that_people_type(shell: str) -> None:
    result = CliRunner().invoke(command, [shell])
    assert result.exit_code == 0
    assert f"_REPRISE_COMPLETE={shell}_complete" in result.output
    assert "reprise" in result.output


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"]])
def test_one_shell_that_is_known_is_named(words: list[str]) -> None:
    assert CliRunner().invoke(command, words).exit_code == 2


def test_the_name_of_a_topology_may_be_left_out_and_is_completed() -> None:
    @click.command()
    @arguments.name_argument
    def named(name: str | None) -> None:
        click.echo(repr(name))

    assert CliRunner().invoke(named, []).output == "None\n"
    assert CliRunner().invoke(named, ["flights"]).output == "'flights'\n"
    (argument,) = named.params
    assert argument._custom_shell_complete is topologies
