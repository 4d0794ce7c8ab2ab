"""Running a topology on this machine: start everything, break what a fault file says, report how it recovered."""
