"""Optional packages, and the extra that installs each."""

from __future__ import annotations

from importlib.util import find_spec

#: Package -> the extra of pyproject.toml that installs it.
EXTRAS = {
    "IPython": "notebook",
    "matplotlib": "plot",
    "prometheus_client": "exporter",
    "scipy": "plan",
}


#: Install path of Debian's package; pip must not install next to it.
_DEBIAN = "/usr/lib/python3/dist-packages/"


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the text is one line that says what to do."""


def need(package: str, what: str) -> None:
    """Checks that a package of an extra can be imported, without importing it.

    Args:
        package: one of EXTRAS.
        what: the feature that needs it, for the error.

    Raises:
        MissingExtraError: it is not installed.
    """
    if find_spec(package) is None:
        command = f"pip install 'careful[{EXTRAS[package]}]'"
        if __file__.startswith(_DEBIAN):
            command = f"apt install python3-{package.lower().replace('_', '-')}"
        raise MissingExtraError(f"{what} needs {package}: {command}", name=package)
