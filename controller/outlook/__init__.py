"""What comes next, when, and why: answers for the person on call, from the status document and the records alone.

The law of this package: pure, and honest.  A time is a range with the basis that it rests on, or unknown; nothing is
estimated from what was not measured in this topology.
"""

from controller.outlook.explain import Explanation, explain
from controller.outlook.measured import Measured, measured
from controller.outlook.simulate import SimulationError, parse_arrivals, simulate

__all__ = [
    "Explanation",
    "Measured",
    "SimulationError",
    "explain",
    "measured",
    "parse_arrivals",
    "simulate",
]
