"""The version of what is installed."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of kws-edge as pip knows it, or in words that it is not installed."""
    try:
        return version("kws-edge")
    except PackageNotFoundError:
        return "not installed, run from its source"
