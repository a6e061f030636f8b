"""What `kws-export` starts, and `python -m kws_export`, which torchrun needs."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends in silence while it is still being imported, too."""
    try:
        from kws_export.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run(prog_name="kws-export")


if __name__ == "__main__":
    main()
