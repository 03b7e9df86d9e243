"""What `config check` prints."""

from __future__ import annotations

from careful.control.config import Config


def checked(found: Config) -> str:
    """The files that were read, which have no error, and what they hold."""
    if not found.paths:
        return "no configuration file: every option has its default"
    listed = " and ".join(str(one) for one in found.paths)
    return f"{listed}: no error; {len(found.nodes)} nodes, {len(found.instances)} instances"
