"""What a run amounts to: timeline, latencies, availability, plot, and the comparison of two runs' outputs."""

from controller.report.compare import Comparison, compare
from controller.report.write import write_report

__all__ = ["Comparison", "compare", "write_report"]
