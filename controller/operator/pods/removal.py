"""The end of a topology's pods when its object is deleted: the driver, then its executors.

Invariant: it comes to an end.  Each pod is told to end, is removed by force when its grace has passed and nobody has ended
it (its machine is lost), and is named and left behind when even that is refused for long.  So a StreamTopology never stays
`Terminating` because of a machine that is gone.  All times are of this operator's own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.errors import ApiError
from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.kubernetes.pods import PodView, pod_view
from reprise.controller.operator.pods.endings import Endings
from reprise.controller.operator.pods.manifests import driver_name

GIVE_UP_S = 90.0
"""After this time a pod that is still there is left behind.  Many times its grace, so that it is never for want of time."""


@dataclass(slots=True)
class Removal:
    """The removal of one topology's pods."""

    api: Api
    events: Events
    namespace: str
    name: str
    clock: Callable[[], float] = time.monotonic
    _endings: Endings = field(init=False)
    _since: dict[str, float] = field(default_factory=dict)
    """By uid: when it was told to end first, or that was refused first."""
    _refused: dict[str, str] = field(default_factory=dict)
    _left: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._endings = Endings(self.clock)

    def step(self, pods: Mapping[str, PodView]) -> bool:
        """One step; whether all are gone, or what is not has been named in an Event.  `pods`: those of the topology by the
        watch.  Raises BudgetError and UnknownError: then the step is taken again."""
        driver = self._driver()
        if driver is not None and not self._end(driver):
            return False  # before its executors: it would ask for others
        executors = [pod for pod in pods.values() if pod.name != driver_name(self.name)]
        gone = [self._end(pod) for pod in executors]
        return all(gone)

    def _driver(self) -> PodView | None:
        """Asked for, as the watch may lag behind its creation."""
        name = driver_name(self.name)
        try:
            found = self.api.find(self._path(name))
        except ApiError as error:
            self.events.say(
                EventReason.POD_LEFT, f"pod {name} is left behind if there is one: {error}", warning=True
            )
            return None
        return None if found is None else pod_view(found)

    def _end(self, pod: PodView) -> bool:
        """Whether nothing more is to be done about this pod."""
        if pod.uid in self._left:
            return True
        now = self.clock()
        if now - self._since.get(pod.uid, now) > GIVE_UP_S:
            self._left.add(pod.uid)
            why = self._refused.get(pod.uid, "it was removed by force, and is still there")
            self.events.say(EventReason.POD_LEFT, f"pod {pod.name} is left behind: {why}", warning=True)
            return True
        try:
            self._tell(pod)
        except ApiError as error:
            self._refused[pod.uid] = str(error)
        self._since.setdefault(pod.uid, now)
        return False

    def _tell(self, pod: PodView) -> None:
        path = self._path(pod.name)
        if pod.deleted_at is None:
            self.api.delete(path, uid=pod.uid)
        elif self._endings.overdue(pod):
            self.events.note(
                EventReason.POD_FORCED,
                f"{pod.name}: its grace is over, and nobody has ended it",
                warning=True,
            )
            self.api.delete(path, uid=pod.uid, grace_s=0)

    def _path(self, pod: str) -> str:
        return f"{collection(self.namespace, 'pods')}/{pod}"
