"""What the project's accounts have asked the API server for, by its own audit log, and what it has refused them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
    ],
}


@dataclass(frozen=True, order=True, slots=True)
class Asked:
    """One kind of request."""

    account: str
    """Name of the service account."""
    group: str
    resource: str
    """With its subresource, `pods/status` for instance."""
    verb: str


class AuditLog:
    """The log of one API server, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._policy, self._log = folder / "audit-policy.json", folder / "audit.log"

    def flags(self) -> tuple[str, ...]:
        """What the API server is started with; writes the policy."""
        self._policy.parent.mkdir(parents=True, exist_ok=True)
        self._policy.write_text(json.dumps(_POLICY), encoding="utf-8")
        return f"--audit-policy-file={self._policy}", f"--audit-log-path={self._log}"

    def asked(self) -> set[Asked]:
        """What was answered with anything but a refusal."""
        return {asked for asked, status in self._entries() if status != 403}

    def refused(self) -> set[Asked]:
        """What an account had no right to; not what was refused by a server that had just started and knew no rules yet."""
        return {asked for asked, status in self._entries() if status == 403} - self.asked()

    def _entries(self) -> Iterator[tuple[Asked, int]]:
        for line in self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else ():
            entry = json.loads(line)
            about = entry.get("objectRef")
            if about is not None:  # of no resource: which versions there are, and how the server is
                resource = "/".join(filter(None, (about.get("resource", ""), about.get("subresource", ""))))
                account = entry["user"]["username"].rpartition(":")[2]
                asked = Asked(account, about.get("apiGroup", ""), resource, entry["verb"])
                yield asked, int(entry["responseStatus"]["code"])
