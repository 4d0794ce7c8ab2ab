"""`python -m controller.cli`: `reprise` where its script is not on the path."""

from controller.cli import main

main(prog_name="reprise")
