"""Optional packages, and the extra that installs each."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

#: Package -> the extra of pyproject.toml that installs it.
EXTRAS = {
    "IPython": "notebook",
    "matplotlib": "plot",
    "prometheus_client": "exporter",
    "scipy": "plan",
}


#: Install path of Debian's package; pip must not install next to it.
_DEBIAN = "/usr/lib/python3/dist-packages/"
#: tools/setup of the checkout that this environment belongs to, if it belongs to one.
_SETUP = Path(sys.prefix).parent / "tools/setup"


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the text is one line that says what to do."""


def lacking(package: str, what: str) -> str:
    """Returns "" if a package of an extra can be imported, else a line that says how to install it.

    Args:
        package: one of EXTRAS.
        what: the feature that needs it.
    """
    if find_spec(package) is not None:
        return ""
    command = f"pip install 'careful[{EXTRAS[package]}]'"
    if __file__.startswith(_DEBIAN):
        command = f"apt install python3-{package.lower().replace('_', '-')}"
    elif EXTRAS[package] != "notebook" and _SETUP.exists():
        command = f"{shlex.quote(str(_SETUP))} extras"
    return f"{what} needs {package}: {command}"


def need(package: str, what: str) -> None:
    """Raises MissingExtraError with the text of lacking() if the package is not installed."""
    if text := lacking(package, what):
        raise MissingExtraError(text, name=package)
