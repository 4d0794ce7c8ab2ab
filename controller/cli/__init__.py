"""The command line `reprise`."""

from controller.cli.app import main

__all__ = ["main"]
