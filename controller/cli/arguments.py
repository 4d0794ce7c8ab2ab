"""Arguments that several commands share."""

from __future__ import annotations

import click

from reprise.controller.cli.complete import topologies

name_argument = click.argument("name", required=False, shell_complete=topologies)
"""The topology on Kubernetes, which `target_options` takes into the address."""
