"""`python -m kws_edge`, where the environment's programs are not on the path."""

from kws_edge.cli import main

main(prog_name="kws-edge")
