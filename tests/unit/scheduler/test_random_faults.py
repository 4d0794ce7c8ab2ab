"""Random faults, crashes and races of coordinators against the simulator, which checks the invariants at
every step; at the end capacity returns, and everything must come back and the incident close."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprise.scheduler import Decision, PartitionStats, Policy, Scope, Strategy
from tests.support.examples import examples
from tests.support.recovery_simulator import World, diamond

NODES = 4
ACTIONS = [
    "kill",
    "kill",
    "kill-two",
    "add",
    "add",
    "add-returning",
    "drive",
    "drive",
    "coordinate",
    "coordinate",
    "coordinate",
    "crash-before-commit",
    "second-coordinator",
    "late-commit",
    "run",
    "run",
    "run",
    "wait",
    "long-wait",
    "lose-state",
    "poison",
    "driver-restart",
    "damage-checkpoint",
    "zookeeper-away",
    "pause",
    "stats",
    "full",
]


class Faults:
    """One method an action; `pick` chooses its target."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: tuple[int, Decision] | None = None
        self.names = NODES

    def apply(self, action: str, pick: int) -> None:
        getattr(self, action.replace("-", "_"))(pick)
        self.world.check_flags()

    def full(self, pick: int) -> None:
        self.world.full = pick % 2 == 0
        self.world.may_drop = True

    def kill(self, pick: int) -> None:
        names = self.world.names()
        if names:
            self.world.kill(names[pick % len(names)])

    def kill_two(self, pick: int) -> None:
        self.kill(pick)
        self.kill(pick)

    def add(self, pick: int) -> None:
        self.names += 1
        self.world.add(f"n{self.names}", [1000, 500, 2000][pick % 3])

    def add_returning(self, pick: int) -> None:
        gone = sorted(set(self.world.incarnations) - set(self.world.names()))
        if gone:
            self.world.add(gone[pick % len(gone)])

    def drive(self, _: int) -> None:
        self.world.drive()

    def coordinate(self, _: int) -> None:
        self.world.coordinate()

    def run(self, pick: int) -> None:
        self.world.run(0.3 + pick % 5)

    def crash_before_commit(self, _: int) -> None:
        self.world.look()

    def second_coordinator(self, _: int) -> None:
        first, second = self.world.look(), self.world.look()
        done = self.world.commit(*first)
        assert not (done and self.world.commit(*second))

    def late_commit(self, _: int) -> None:
        held, self.held = self.held, self.world.look()
        if held is not None:
            self.world.commit(*held)

    def wait(self, _: int) -> None:
        self.world.now += 1.1

    def long_wait(self, _: int) -> None:
        self.world.now += 130.0

    def driver_restart(self, _: int) -> None:
        self.world.start_driver()

    def zookeeper_away(self, _: int) -> None:
        self.world.session = False
        assert not self.world.coordinate().steps
        self.world.session = True

    def pause(self, _: int) -> None:
        self.world.paused = not self.world.paused

    def lose_state(self, pick: int) -> None:
        self.world.lose_state(self._partition(pick))

    def poison(self, pick: int) -> None:
        if self.world.driver and not self.world.poison_at:
            self.world.poison_at[self._partition(pick)] = self.world.driver.horizon + 2

    def damage_checkpoint(self, _: int) -> None:
        self.world.damaged |= {max(self.world.checkpoints, default=0)} - {0}

    def stats(self, pick: int) -> None:
        self.world.stats[self._partition(pick)] = PartitionStats(float(pick * 7 % 1500))

    def _partition(self, pick: int) -> str:
        partitions = self.world.topology.partitions
        return partitions[pick % len(partitions)].id

    def heal(self) -> None:
        """Capacity for everything, and no more faults."""
        world = self.world
        world.session, world.paused = True, False
        for _ in world.topology.partitions:
            self.names += 1
            world.add(f"n{self.names}")
        for _ in range(400):
            world.now += 0.3
            world.drive()
            world.coordinate()
            world.check_flags()
            if world.healthy():
                return
        raise AssertionError("\n".join([*world.log, repr(world.incident), repr(world.driver)]))


BY_ROUNDS = [scope for scope in Scope if scope is not Scope.PARTITION]
"""The driver in here restores rounds; with clocks of their own it is the real engine that finds what goes back."""


@examples(100)
@given(
    strategy=st.sampled_from(list(Strategy)),
    deterministic=st.booleans(),
    scope=st.sampled_from(BY_ROUNDS),
    cpu=st.sampled_from([40, 100, 230]),
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 400)), max_size=60),
)
def test_everything_comes_back(
    strategy: Strategy, deterministic: bool, scope: Scope, cpu: int, actions: list[tuple[str, int]]
) -> None:
    policy = Policy(strategy=strategy, nodes_wanted=NODES, algorithm="best-density", scope=scope)
    world = World(diamond(2, cpu, deterministic), policy, may_drop=scope is Scope.ANCESTORS)
    world.started(NODES, checkpoint=cpu < 200)
    faults = Faults(world)
    for action, pick in actions:
        faults.apply(action, pick)
    faults.heal()
    plans = {plan.id for plan in world.plans}
    assert {p for incident in world.closed for p in incident.plans} <= plans
    assert len({incident.id for incident in world.closed}) == len(world.closed)
