"""`reprise resume`: the other half of `pause`."""

from reprise.controller.cli.pause_command import resume as command

__all__ = ["command"]
