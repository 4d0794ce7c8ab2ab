"""Alerts for Prometheus: `rules` declares them, `render` makes the chart's and the plain rules file of them."""
