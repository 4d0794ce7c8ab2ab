"""Fault files and traces: what is to break in a run, and when."""
