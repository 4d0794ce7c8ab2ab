"""Plans that an operator before this one has proposed: their objects say what became of them, and go with their incident.

An operator knows by heart which plans it has proposed.  One that is started anew asks once, where incidents are on record:
what is not proposed any more must not look as if it waited for somebody, and nobody else would ever remove it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprise.controller.crd.convert import INCIDENT_LABEL, object_name
from reprise.controller.kubernetes.errors import ForbiddenError
from reprise.controller.operator.status.approval import PlanApproval, proposal_digest
from reprise.controller.operator.status.publisher import ObjectPublisher
from reprise.controller.zookeeper.observation import Observation

log = logging.getLogger("reprise.operator")


@dataclass(slots=True)
class FormerProposals:
    """Those of one topology."""

    publisher: ObjectPublisher
    approval: PlanApproval
    _settled: bool = False

    def settle(self, seen: Observation) -> None:
        """Before objects are shown or removed.  Raises OperatorError, and is to be asked again then; but where plans may not
        be listed they stay as they are, as with rights of an earlier version nothing would be shown any more."""
        if self._settled or not seen.incidents:
            return
        try:
            self._settle(seen)
        except ForbiddenError as error:
            log.warning(
                "event=former-proposals-left topology=%s reason=%r", self.publisher.reference.name, str(error)
            )
        self._settled = True

    def _settle(self, seen: Observation) -> None:
        topology = self.publisher.reference.name
        incidents = {object_name(topology, incident.id)[:63]: incident.id for incident in seen.incidents}
        carried_out = {
            f"{object_name(topology, plan.id)}-{proposal_digest(plan)}" for plan in seen.plans.values()
        }
        for plan in self.publisher.listed_plans():
            meta = plan["metadata"]
            name = meta["name"]
            if name == object_name(topology, plan["spec"]["id"]) or name == self.approval.proposed:
                continue  # the object of a plan that was carried out; or this operator's own proposal
            incident = incidents.get((meta.get("labels") or {}).get(INCIDENT_LABEL, ""))
            if incident is None:
                self.publisher.remove_proposal(name)
                continue
            self.publisher.adopt(incident, name)
            if _waits(plan):
                say = self.publisher.approve if name in carried_out else self.publisher.supersede
                say(name)


def _waits(plan: Mapping[str, Any]) -> bool:
    """Whether it says so, or nothing yet, as whoever made it has ended before it could."""
    return bool((plan.get("status") or {}).get("state", "Proposed") == "Proposed")
