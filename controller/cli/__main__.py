"""`python -m reprise.controller.cli`: `reprise` where its script is not on the path."""

from reprise.controller.cli import main

main(prog_name="reprise")
