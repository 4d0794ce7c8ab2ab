"""Sinks and checkpoints on the servers of object stores, with what goes wrong on the way to them."""
