"""Topologies to start from, fault files, and the demos that run them."""
