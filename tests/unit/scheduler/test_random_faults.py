"""Random faults, crashes and races of coordinators against the simulator, which checks the invariants at
every step; at the end capacity returns, and everything must come back and the incident close."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recovery_simulator import World, diamond

from scheduler import Decision, PartitionStats, Policy, Strategy

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
]


class Faults:
    """Applies one action after the other; `pick` chooses its target."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: tuple[int, Decision] | None = None
        self.names = NODES

    def apply(self, action: str, pick: int) -> None:
        world, names = self.world, self.world.names()
        match action:
            case "kill" | "kill-two":
                for k in range(2 if action == "kill-two" else 1):
                    if names:
                        world.kill(names[(pick + k) % len(names)])
            case "add":
                self.names += 1
                world.add(f"n{self.names}", [1000, 500, 2000][pick % 3])
            case "add-returning":
                gone = [n for n in sorted(world.incarnations) if n not in names]
                if gone:
                    world.add(gone[pick % len(gone)])
            case "drive":
                world.drive()
            case "coordinate":
                world.coordinate()
            case "run":
                world.run(0.3 + pick % 5)
            case "crash-before-commit":
                world.look()
            case "second-coordinator":
                first, second = world.look(), world.look()
                done = world.commit(*first)
                assert not (done and world.commit(*second))
            case "late-commit":
                held, self.held = self.held, world.look()
                if held is not None:
                    world.commit(*held)
            case "wait" | "long-wait":
                world.now += 130.0 if action == "long-wait" else 1.1
            case "driver-restart":
                world.start_driver()
            case "zookeeper-away":
                world.session = False
                assert not world.coordinate().steps
                world.session = True
            case "pause":
                world.paused = not world.paused
            case _:
                self._damage(action, pick)
        world.check_flags()

    def _damage(self, action: str, pick: int) -> None:
        world = self.world
        partition = world.topology.partitions[pick % len(world.topology.partitions)].id
        match action:
            case "lose-state":
                world.lose_state(partition)
            case "poison":
                if world.driver and not world.poison_at:
                    world.poison_at[partition] = world.driver.horizon + 2
            case "damage-checkpoint":
                world.damaged |= {max(world.checkpoints, default=0)} - {0}
            case "stats":
                world.stats[partition] = PartitionStats(float(pick * 7 % 1500))

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


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    strategy=st.sampled_from(list(Strategy)),
    deterministic=st.booleans(),
    cpu=st.sampled_from([40, 100, 230]),
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 400)), max_size=60),
)
def test_everything_comes_back(
    strategy: Strategy, deterministic: bool, cpu: int, actions: list[tuple[str, int]]
) -> None:
    policy = Policy(strategy=strategy, nodes_wanted=NODES, algorithm="best-density")
    world = World(diamond(2, cpu, deterministic), policy).started(NODES, checkpoint=cpu < 200)
    faults = Faults(world)
    for action, pick in actions:
        faults.apply(action, pick)
    faults.heal()
    plans = {plan.id for plan in world.plans}
    assert {p for incident in world.closed for p in incident.plans} <= plans
    assert len({incident.id for incident in world.closed}) == len(world.closed)
