"""Packages that the core does without, and the extra that brings each; calls nothing."""

from __future__ import annotations

from importlib.util import find_spec

#: Package -> the extra of pyproject.toml that installs it.
EXTRAS = {
    "IPython": "notebook",
    "matplotlib": "plot",
    "prometheus_client": "exporter",
    "scipy": "plan",
}


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the text is one line that says what to do."""


def need(package: str, what: str) -> None:
    """Make sure that a package of an extra can be imported, without importing it.

    Args:
        package: one of EXTRAS.
        what: who needs it, for the error.

    Raises:
        MissingExtraError: it is not installed.
    """
    if find_spec(package) is None:
        command = f"pip install 'careful[{EXTRAS[package]}]'"
        raise MissingExtraError(f"{what} needs {package}: {command}", name=package)
