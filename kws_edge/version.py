"""The version of what is installed."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of kws-edge as pip knows it; "not installed" for a source tree that only lies on the path."""
    try:
        return version("kws-edge")
    except PackageNotFoundError:
        return "not installed"
