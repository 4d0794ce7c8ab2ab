"""What a run amounts to: latencies, availability, plot, and the comparison of two runs' outputs."""
