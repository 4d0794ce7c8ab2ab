"""Metrics for Prometheus: what there is (`catalogue`), its values (`control`, `driver`), and how it is served."""
