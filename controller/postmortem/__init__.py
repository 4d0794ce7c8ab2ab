"""The post-mortem of one incident: what happened, what it cost, and what would have been otherwise.

The law of this package: every number comes from the records of the incident, or from the planners run on them, and what was
assumed stands beside it.  `export` alone writes files.
"""

from controller.postmortem.counterfactual import Counterfactuals, counterfactuals
from controller.postmortem.export import export
from controller.postmortem.story import Story

__all__ = ["Counterfactuals", "Story", "counterfactuals", "export"]
