"""Which topology is meant, one way for all commands: a folder of a run, a ZooKeeper, or Kubernetes.

| way | given as | what is known |
|---|---|---|
| a run on this machine | `--out DIR` | everything, from its ZooKeeper; when it has ended, what its folder holds |
| a ZooKeeper that can be reached | `--zk HOSTS --root PATH -f FILE` | everything |
| Kubernetes | `NAME -n NAMESPACE` | everything where the controller's page can be reached, else what the resources say |

Nobody but `pause`, `resume`, `drain`, `skip`, `savepoint`, `approve` and `restart` writes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from reprise.controller.status import StatusDocument
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import StreamTopology

F = TypeVar("F", bound=Callable[..., Any])
PLUGIN = "kubectl-reprise"


class Target(Protocol):
    """One topology.  Every method may raise NotRunningError."""

    def __enter__(self) -> Target: ...

    def __exit__(self, *error: object) -> None: ...

    def resource(self) -> StreamTopology:
        """Its spec."""

    def document(self) -> StatusDocument:
        """How it stands now."""

    def observation(self) -> Observation:
        """The records that this is made of."""

    def resources(self) -> dict[str, Any] | None:
        """What the Kubernetes objects say; None where there are none."""

    def pause(self, paused: bool) -> str:
        """Ask for a pause, or for its end; what was written where."""

    def drain(self, node: str, wanted: bool) -> str:
        """Ask for a node to be emptied, or take the wish back; what was written where."""

    def skip(self, query: str, wanted: bool) -> str:
        """Ask for a query to do without what it has missed, or take back a wish that nobody has taken; what was written
        where."""

    def savepoint(self, wish: SavepointWish) -> str:
        """Ask for a savepoint, or for its end; what was written where."""

    def actions(self) -> list[str]:
        """Newest things that a fault file did."""

    def is_over(self) -> bool:
        """Whether there is nothing to come any more."""

    def files(self) -> dict[str, bytes]:
        """What belongs into a bundle for a bug report besides, by name; not redacted yet."""


@dataclass(frozen=True, slots=True)
class Address:
    """The options of one call."""

    out: Path | None = None
    zk: str | None = None
    root: str | None = None
    file: Path | None = None
    name: str | None = None
    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    url: str | None = None

    @property
    def on_cluster(self) -> bool:
        """Whether it is a topology by its name on Kubernetes, where an operator decides."""
        return self.out is None and not (self.zk or self.root or self.file)

    def open(self) -> Target:
        """What the options mean.  UsageError when they are none or several of the three ways."""
        from reprise.controller.cli import target_kubernetes, target_local

        local, zookeeper = self.out is not None, bool(self.zk or self.root or self.file)
        cluster = bool(self.name or self.namespace or self.context or self.kubeconfig or self.url)
        if local + zookeeper + cluster > 1:
            raise click.UsageError("--out, --zk and a name on Kubernetes are three ways: give one of them")
        if self.out is not None:
            return target_local.last_or_now(self.out)
        if zookeeper:
            if not (self.zk and self.root and self.file):
                raise click.UsageError("--zk HOSTS, --root PATH and -f FILE belong together")
            return target_local.of_zookeeper(self.zk, self.root, self.file)
        if not cluster and not is_plugin():
            raise click.UsageError(
                "which topology? give --out DIR, or --zk HOSTS --root PATH -f FILE, or NAME -n NAMESPACE"
            )
        return target_kubernetes.of_cluster(self)


def is_plugin() -> bool:
    """Whether this is `kubectl reprise`, which means Kubernetes when nothing else is said."""
    context = click.get_current_context(silent=True)
    return context is not None and PLUGIN in (context.find_root().info_name or "")


def query_of(address: Address, words: tuple[str, ...]) -> tuple[Address, str]:
    """One word is the query; two are the topology on Kubernetes and the query."""
    if len(words) > 2:
        raise click.UsageError("give QUERY, or NAME and QUERY")
    return (address, words[0]) if len(words) == 1 else (replace(address, name=words[0]), words[1])


def target_options(command: F) -> F:
    """Options of a command that asks a topology; it gets an `address`.  A `name` that the command takes as an argument is
    part of it."""

    @wraps(command)
    def called(*args: Any, name: str | None = None, **options: Any) -> Any:
        fields = ("out", "zk", "root", "file", "namespace", "context", "kubeconfig", "url")
        address = Address(name=name, **{field: options.pop(field) for field in fields})
        return command(*args, address=address, **options)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called  # type: ignore[return-value]


_PATH = click.Path(path_type=Path)
_OPTIONS = (
    click.option("--out", type=_PATH, help="Folder of a run on this machine."),
    click.option("--zk", help="ZooKeeper hosts, with --root and -f."),
    click.option("--root", help="/reprise/<namespace>/<topology>, with --zk."),
    click.option("-f", "--file", type=_PATH, help="The topology, with --zk."),
    click.option("-n", "--namespace", help="On Kubernetes; else that of the kubeconfig's context."),
    click.option("--context", help="Of the kubeconfig, instead of the current one."),
    click.option("--kubeconfig", type=_PATH, help="Instead of KUBECONFIG and ~/.kube/config."),
    click.option("--url", help="The controller's page, where the API server's proxy does not lead to it."),
)
