"""The command line `reprise`."""

from reprise.controller.cli.app import main

__all__ = ["main"]
