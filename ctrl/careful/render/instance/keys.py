"""The output of `key`."""

from __future__ import annotations

from collections.abc import Sequence

from careful.control.options.keys import Trusted
from careful.render.tables import table


def key_figures(trusted: Sequence[Trusted]) -> list[dict[str, str | None]]:
    """Returns the trusted keys for JSON."""
    return [{"address": one.address, "name": one.name or None, "key": one.key} for one in trusted]


def trusted(found: Sequence[Trusted]) -> str:
    """Returns the trusted keys as a table."""
    if not found:
        return "no key is trusted: carefulctl key trust HOST KEY"
    rows = [(one.name or one.address, one.address, one.key) for one in found]
    return table("", ["host", "address", "key"], rows)
