"""What `kws-edge` starts, and `python -m kws_edge`, where the environment's programs are not on the path."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends in silence while it is still being imported, too."""
    try:
        from kws_edge.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run(prog_name="kws-edge")


if __name__ == "__main__":
    main()
