"""Grafana dashboards: `panels` says what is shown, `model` makes Grafana's JSON of it."""
