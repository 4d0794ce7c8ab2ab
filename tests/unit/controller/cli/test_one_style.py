"""What all commands have in common: how they say no, what `-o` means, and what a shell completes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from reprise.controller.cli import kubectl_complete, main, target_kubernetes
from reprise.controller.cli.app import COMMANDS
from reprise.controller.cli.render import FORMS, how_found
from reprise.controller.cli.target import Address
from reprise.spark_jobs.topology import load_topology, to_json
from tools.testbed import clients

EXAMPLES = Path(__file__).parents[4] / "examples"
MINIMAL = EXAMPLES / "minimal.yaml"


def reprise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], prog_name="reprise")


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main, info_name="reprise")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", command.commands[inner]) for inner in command.commands)


ALL = dict(commands())


@pytest.mark.parametrize("name", ALL)
def test_o_is_the_form_of_what_is_printed_in_every_command_that_has_it(name: str) -> None:
    for option in ALL[name].params:
        if "-o" in option.opts and not getattr(option, "hidden", False):
            assert isinstance(option.type, click.Choice)
            assert tuple(option.type.choices) == FORMS
            assert "--output" in option.opts


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_is(name: str) -> None:
    options = [o for o in ALL[name].params if isinstance(o, click.Option) and not o.hidden]
    assert [o.name for o in options if not o.help] == []


USAGE = [
    (["--frob"], "error: no such option '--frob'"),
    (["fly"], "error: no command 'fly'; there are demo, "),
    (["run"], "error: which topology? give -f FILE"),
    (["validate", "-f", str(MINIMAL), "more"], "error: got unexpected extra argument (more)"),
    (["explain"], "error: missing argument '[NAME] QUERY'"),
    (["explain", "a", "b", "c", "--out", "x"], "error: give QUERY"),
    (["explain", "--checkpoint", "a", "b"], "error: with --checkpoint no query"),
    (["status"], "error: which topology? give --out DIR"),
    (["status", "--out", "x", "--zk", "h"], "error: --out, --zk"),
    (["queries", "--zk", "h"], "error: --zk"),
    (["plan", "-i", "a", "--from-incident", "b"], "error: give one of --input and --from-incident"),
    (["incident", "export", "--to"], "error: option '--to' requires an argument"),
    (["records", "save"], "error: missing option '--zk' (see `reprise records save --help`)"),
    (["completion", "tcsh"], "error: invalid value for '{bash|zsh|fish}'"),
    (["graph", "-f", str(MINIMAL), "-o", "g.svg"], "error: a picture is drawn with --to g.svg"),
    (["compare", "-o", "text", "a", "b"], "error: invalid value for '-o' / '--output'"),
]


@pytest.mark.parametrize(("arguments", "begins"), USAGE, ids=lambda value: " ".join(value)[:40])
def test_wrong_words_of_a_call_are_one_line_of_the_same_style(arguments: list[str], begins: str) -> None:
    result = reprise(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.lower().startswith(begins.lower()), result.stderr
    assert result.stderr.count("\n") == 1


def test_without_a_command_there_is_help() -> None:
    result = reprise()
    assert "First steps:" in result.stderr + result.stdout
    assert not result.stderr.startswith("error: ")


@pytest.mark.parametrize("command", [["validate"], ["graph"], ["run", "--out", "never"]])
def test_all_mistakes_of_a_topology_are_listed_below_their_number(tmp_path: Path, command: list[str]) -> None:
    text = MINIMAL.read_text().replace("paralle", "parale").replace("{keys: [tag]}", "{keys: 5}")
    path = tmp_path / "T.yaml"
    path.write_text(text.replace("interval: 500ms}\n  s", "interval: 5}\n  s"))
    result = reprise(*command, "-f", path)
    assert result.exit_code == 2
    first, *lines = result.stderr.splitlines()
    assert first == f"error: {len(lines)} mistakes were found"
    assert [line.partition(": ")[0] for line in lines] == [
        "  spec.batch.interval",
        "  spec.operators[count].paralelism",
        "  spec.operators[count].with.keys",
    ]
    assert lines[1].endswith("did you mean 'parallelism'? (T.yaml, line 22)")
    assert not Path("never").exists()


def test_all_mistakes_of_a_fault_file_are_listed(tmp_path: Path) -> None:
    faults = tmp_path / "F.yaml"
    faults.write_text("- {at: 5s, kil: [n2]}\n- {at: 5s, kill: ['@cuont.0']}\n")
    result = reprise("run", "-f", MINIMAL, "--faults", faults, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: 2 mistakes were found",
        f"  {faults}: [0].kil: unknown field; did you mean 'kill'? (line 1)",
        f"  {faults}: [1].kill: there is no partition or operator 'cuont.0'; did you mean 'count.0'? (line 2)",
    ]


def test_steps_of_a_planner_are_not_named() -> None:
    """They say nothing to whoever reads a plan."""
    assert "reductions" not in how_found("reductions") and "dp" in how_found("dp")


def completions(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    *before, last = words
    return [item.value for item in ShellComplete(main, {}, "reprise", "_X").get_completions(before, last)]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    (tmp_path / "topology.json").write_text(to_json(load_topology(MINIMAL)))
    (tmp_path / "plans.json").write_text('{"incidents": [{"id": "inc-000001"}], "plans": []}')
    return tmp_path


def test_a_shell_completes_what_the_run_has(run_folder: Path) -> None:
    out = ["--out", str(run_folder)]
    assert completions("explain", *out, "") == ["count.0", "count.1"]
    assert completions("explain", *out, "count.1") == ["count.1"]
    assert completions("incident", "export", *out, "inc") == ["inc-000001"]
    assert completions("drain", *out, "") == ["n1", "n2", "n3"]
    assert completions("simulate", *out, "--lose", "n1,n2,") == ["n1,n2,n1", "n1,n2,n2", "n1,n2,n3"]
    assert "best-density" in completions("plan", "--algorithm", "b")
    assert completions("explain", "--zk", "h", "--root", "/r", "-f", str(MINIMAL), "") == [
        "count.0",
        "count.1",
    ]
    assert "explain" in completions("e")


@pytest.mark.parametrize(
    ("there", "words", "offered"),
    [
        (["first", "second"], ["status", ""], ["first", "second"]),
        (["first", "second"], ["pause", "-n", "streams", "f"], ["first"]),
        (["first", "second"], ["explain", ""], ["first", "second"]),
        (["first", "second"], ["explain", "second", ""], ["count.0", "count.1"]),
        (["first", "second"], ["skip", "second", "count.1"], ["count.1"]),
        (["first"], ["explain", ""], ["count.0", "count.1", "first"]),
        ([], ["explain", ""], []),
        (["first"], ["explain", "other", ""], []),
    ],
)
def test_a_shell_completes_what_is_on_the_cluster(
    monkeypatch: pytest.MonkeyPatch, there: list[str], words: list[str], offered: list[str]
) -> None:
    asked: list[str | None] = []

    def listed(address: Address, everywhere: bool) -> list[dict[str, Any]]:
        asked.append(address.namespace)
        spec = yaml.safe_load(MINIMAL.read_text())
        return [{**spec, "metadata": {"name": name, "namespace": "streams"}} for name in there]

    monkeypatch.setattr(target_kubernetes, "listed", listed)
    assert completions(*words) == offered
    assert asked == ["streams" if "-n" in words else None]


def test_no_cluster_is_asked_where_a_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, run_folder: Path
) -> None:
    monkeypatch.setattr(target_kubernetes, "listed", lambda *_, **__: pytest.fail("a cluster was asked"))
    assert completions("status", "--out", str(run_folder), "") == []
    assert completions("explain", "--out", str(run_folder), "") == ["count.0", "count.1"]


def test_kubectl_is_answered_with_a_word_a_line_and_a_directive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run_folder: Path
) -> None:
    for words, said in (
        (["explain", "--out", str(run_folder), "count"], ["count.0", "count.1", ":4"]),
        (["verify", "--code", ""], [":0"]),
        (["no-such-command", "x"], [":4"]),
    ):
        monkeypatch.setattr("sys.argv", ["kubectl_complete-reprise", *words])
        kubectl_complete.main()
        assert capsys.readouterr().out.splitlines() == said
    monkeypatch.setattr("sys.argv", ["kubectl_complete-reprise", "expl"])
    kubectl_complete.main()
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("explain") and last == ":4"


@pytest.mark.slow  # kubectl is downloaded once
def test_kubectl_completes_the_plugin(tmp_path: Path, run_folder: Path) -> None:
    for name, module in (("kubectl-reprise", "cli"), ("kubectl_complete-reprise", "cli.kubectl_complete")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        main = f"from reprise.controller.{module} import main; main()"
        program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{main}' \"$@\"\n")
        program.chmod(0o755)
    words = ["__complete", "reprise", "explain", "--out", str(run_folder), "count."]
    done = subprocess.run(
        [str(clients.ensure() / "kubectl"), *words],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.splitlines() == ["count.0", "count.1", ":4"]
