"""Running a topology on this machine: start everything, break what a fault file says, report how it recovered."""

from controller.report.errors import OutDirError
from controller.run.config import Outcome, RunConfig, RunResult, load
from controller.run.errors import FaultFileError, RunError
from controller.run.faults import Fault, Trigger, load_faults, parse_faults
from controller.run.supervisor import run_topology

__all__ = [
    "Fault",
    "FaultFileError",
    "OutDirError",
    "Outcome",
    "RunConfig",
    "RunError",
    "RunResult",
    "Trigger",
    "load",
    "load_faults",
    "parse_faults",
    "run_topology",
]
