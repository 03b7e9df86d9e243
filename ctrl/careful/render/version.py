"""The output of `carefulctl --version`."""

from __future__ import annotations

from careful.jsonout import Json


def shown(found: Json) -> str:
    """Returns the release, its numbers, and its features, a line each."""
    lines = [
        f"carefulctl {found['version']}, libcareful {found['library']}",
        f"wire {found['wire_version']}.{found['wire_minor']} (between hosts), "
        f"socket {found['socket_version']} (to carefuld), ABI {found['abi_version']} (of its maps)",
    ]
    lines += [f"{kind}: {', '.join(names) or 'none'}" for kind, names in found["features"].items()]
    return "\n".join(lines)
