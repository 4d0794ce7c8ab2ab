"""Records that are given to the users while others, who may still write there, go on."""

from __future__ import annotations

from typing import cast

from kazoo.security import ACL

from reprise.controller.zookeeper.errors import NoNodeError
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.users import Keys, close

KEYS = Keys("k" * 32)
ROOT = "/reprise/ns/a"


class Tree:
    """A server's znodes with their rights.  `late`: made by a stranger just before the rights of the root are set."""

    def __init__(self, paths: list[str], late: list[str]) -> None:
        self.rights: dict[str, list[ACL] | None] = dict.fromkeys(paths)
        self._late = late

    def set_acls(self, path: str, rights: list[ACL]) -> None:
        if path == ROOT:
            self.rights |= dict.fromkeys(self._late)
        if path not in self.rights:
            raise NoNodeError
        self.rights[path] = rights

    def get_children(self, path: str) -> list[str]:
        if path not in self.rights:
            raise NoNodeError
        return [p.rpartition("/")[2] for p in self.rights if p.rpartition("/")[0] == path]


def test_records_that_are_made_while_the_others_are_given_away_are_given_away_too() -> None:
    above = ["/reprise", "/reprise/ns"]
    early = [ROOT, f"{ROOT}/nodes", f"{ROOT}/nodes/n1"]
    late = [f"{ROOT}/commands", f"{ROOT}/commands/paused"]
    tree = Tree([*above, *early], late)
    assert close(cast(ZooKeeperSession, tree), ROOT, KEYS) == len([*above, *early, *late])
    assert tree.rights == {path: KEYS.allowed(path) for path in [*above, *early, *late]}
