"""What is measured and shown: metrics for Prometheus, alerts, and dashboards for Grafana.

`metrics` holds the catalogue of metrics and their values; `alerts` and `dashboards` declare what the chart ships, and
`python -m tools.generate` writes it there.
"""
