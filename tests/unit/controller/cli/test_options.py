"""Options that several commands share: durations, other values, and the file that is meant where none is named."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from reprise.controller.cli.options import DURATION, HERE, parse_sets, topology_option


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        (2, 2.0),
        (0.25, 0.25),
        ("0", 0.0),
    ],
)
def test_a_duration_is_seconds_with_or_without_a_unit(text: object, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.2.3", "1 s", "nan", "inf", "1e3"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        DURATION.convert(text, None, None)


def test_other_values_are_yaml() -> None:
    assert parse_sets(["a.b=1", "c=[x, 2]", "d=", "e=x=y", "f={g: true}", "a.b=3"]) == {
        "a.b": 3, "c": ["x", 2], "d": None, "e": "x=y", "f": {"g": True},
    }  # fmt: skip
    assert parse_sets([]) == {}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_value_has_a_path(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not written PATH=VALUE"):
        parse_sets([text])


def test_what_is_no_yaml_is_named_with_its_path() -> None:
    with pytest.raises(click.BadParameter, match=r"^a: '\[1' is not YAML"):
        parse_sets(["a=[1"])


@click.command()
@topology_option
def named(file: Path) -> None:
    click.echo(str(file))


def test_without_a_name_the_topology_of_this_folder_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    none = CliRunner().invoke(named, [])
    assert none.exit_code == 2
    assert f"which topology? give -f FILE; there is no {HERE} in this folder" in none.output
    assert CliRunner().invoke(named, ["-f", "other.yaml"]).output == "other.yaml\n", "it is read later"
    (tmp_path / HERE).mkdir()
    assert CliRunner().invoke(named, []).exit_code == 2, "a folder is no topology"
    (tmp_path / HERE).rmdir()
    (tmp_path / HERE).write_text("")
    assert CliRunner().invoke(named, []).output == f"{HERE}\n"
