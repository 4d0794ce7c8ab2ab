"""Topologies to start from, fault files, and the demo over Kafka."""
