"""`reprise resume`: the other half of `pause`."""

from controller.cli.pause_command import resume as command

__all__ = ["command"]
