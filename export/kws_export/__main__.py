"""`python -m kws_export`, which torchrun needs."""

from kws_export.cli import main

main()
