"""The driver's side of the data plane: jobs, what sources may release, checkpoints, and what the driver reports."""
