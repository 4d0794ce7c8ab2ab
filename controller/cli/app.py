"""`reprise`: the commands and what they have in common.

Every mistake of the caller is a line on standard error that names field and reason, and exit code 2; what each exit
code means is in `exits`.  Commands are modules of their own that are imported when they are called: `reprise --help` must
not wait for Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from reprise.controller.cli.exits import guarded

COMMANDS = {
    "demo": "See it: ten nodes on this machine, eight are killed, queries come back, nothing is lost.",
    "init": "Write a topology of your own to begin with, with an operator and its test.",
    "up": "Run the topology of this folder on this machine, and kill nodes if wanted.",
    "run": "Run a topology on a cluster on this machine, with faults if wanted.",
    "status": "How a running topology stands: nodes, queries, plan, and why queries wait.",
    "queries": "Every query of a running topology; what is down comes first.",
    "plan": "The current recovery plan with its reasons; or one computed from a file.",
    "explain": "Why one query is where it is, what it needs, and when it comes back.",
    "simulate": "What would happen if nodes were lost now and others arrived; nothing is touched.",
    "history": "What happened: faults, plans, queries lost and back.",
    "incident": "Post-mortem of an incident as Markdown with pictures.",
    "diff": "What applying a changed file would do to a topology that runs.",
    "apply": "Change a run on this machine in place: priorities, declared load, policies.",
    "pause": "Stop reading further batches.",
    "resume": "Go on after a pause.",
    "drain": "Empty a node before it is taken away.",
    "skip": "Let a query that cannot come back do without what it has missed; what lacks rows is marked.",
    "savepoint": "Keep a checkpoint under a name, for another topology to begin from.",
    "list": "The topologies on Kubernetes: which are ready, and what is wrong with the others.",
    "logs": "The last lines of the driver's or the executors' logs (Kubernetes).",
    "approve": "Let the recovery plan that waits be carried out (Kubernetes).",
    "restart": "End the driver, so that another one is started (Kubernetes).",
    "report": "A bundle for a bug report, without secrets.",
    "checkpoints": "List the global checkpoints of a run and verify their files.",
    "records": "Copy a topology's ZooKeeper records to a second site, and put them back.",
    "graph": "Draw a topology with its partitions and queries.",
    "verify": "Compute a run's output again without faults, and compare it byte for byte.",
    "compare": "Compare the outputs of two runs byte for byte.",
    "validate": "Check a topology file: everything that is wrong with it, at once.",
    "completion": "Completion script of a shell.",
}


class Commands(click.Group):
    """Loads a command's module when it is needed; all errors pass one gate."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name."""
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"reprise.controller.cli.{name}_command").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown command is answered with the known ones."""
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"no command {args[0]!r}; there are {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command behind the gate."""
        return guarded(lambda: super(Commands, self).invoke(ctx))

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the words before the command behind the gate, too."""
        return guarded(lambda: super(Commands, self).make_context(info_name, args, parent, **extra))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="reprise-streams")
def main() -> None:
    """Streaming topologies on Spark that come back query by query after many nodes fail at once.

    \b
    First steps:
      reprise demo
      reprise init words && cd words
      reprise validate --try 5
      reprise up --kill 2
      reprise history --out out/run-1

    \b
    Which topology: --out DIR (a run on this machine), --zk HOSTS --root PATH -f FILE, or NAME -n NAMESPACE on
    Kubernetes; `kubectl reprise ...` is the same.

    \b
    Exit codes: 0 done, 1 the answer is no (run failed, outputs differ, checkpoint damaged),
    2 bad input, 3 out of time, 4 nothing runs there, 5 outputs differ in marked batches alone, 130 interrupted.
    NO_COLOR is respected.
    """
