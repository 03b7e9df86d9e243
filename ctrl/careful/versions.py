"""The protocol numbers and the features of this build, all from the headers."""

from __future__ import annotations

from importlib.util import find_spec

from careful import __version__
from careful._abi import enum_names, ffi, lib
from careful.extras import EXTRAS
from careful.jsonout import Json


def _names(enum: str, prefix: str) -> list[str]:
    return list(enum_names(enum, prefix).values())


def features() -> dict[str, list[str]]:
    """Returns the features of each kind, by their names in options and messages."""
    kinds = set(EXTRAS.values())
    return {
        "protocols": _names("careful_protocol", "CAREFUL_PROTOCOL_"),
        "xdp": _names("careful_xdp_mode", "CAREFUL_XDP_"),
        "wait": _names("careful_wait_mode", "CAREFUL_WAIT_"),
        "digests": _names("careful_block_algorithm", "CAREFUL_BLOCK_"),
        "extras": sorted(
            extra
            for extra in kinds
            if all(find_spec(name) for name, its_extra in EXTRAS.items() if its_extra == extra)
        ),
    }


def versions() -> Json:
    """Returns the release and its protocol numbers.

    `wire` is spoken between hosts, `socket` between a program and carefuld; `abi` is the layout of
    the pinned maps.
    """
    return {
        "version": __version__,
        "library": ffi.string(lib.careful_version()).decode(),
        "wire_version": int(lib.CAREFUL_WIRE_VERSION),
        "wire_minor": int(lib.CAREFUL_WIRE_MINOR),
        "socket_version": int(lib.CAREFUL_IPC_VERSION),
        "abi_version": int(lib.CAREFUL_ABI_VERSION),
        "features": features(),
    }
