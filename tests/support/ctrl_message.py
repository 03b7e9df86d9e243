"""Packs and reads control messages (struct careful_ctrl), whose bodies share their bytes."""

from __future__ import annotations

from typing import Any

from careful._abi import ffi, layout, lib, pack, sizeof, unpack


def ctrl_message(kind: int, body: str = "terms", **fields: Any) -> bytes:
    """Returns a message with a valid check.

    Args:
        kind: CAREFUL_HELLO and so on.
        body: its member of the union in wire.h.
        fields: of the head or of the body; the others are 0, or right.
    """
    names = {one.name for one in layout("careful_ctrl")} & fields.keys()
    head = {"version": int(lib.CAREFUL_WIRE_VERSION), "bytes": sizeof("careful_ctrl")}
    head |= {name: fields.pop(name) for name in names}
    rest = pack(f"careful_{body}", **fields)
    begin = pack("careful_ctrl", type=kind, **head)[: -len(rest)]
    check = int(
        lib.careful_wire_message_check(ffi.from_buffer(begin + rest), sizeof("careful_ctrl"))
    )
    return begin[:4] + check.to_bytes(4, "big") + begin[8:] + rest


def body_of(message: bytes, body: str) -> dict[str, Any]:
    """Returns field -> value of a message's body."""
    struct = f"careful_{body}"
    return unpack(struct, message, sizeof("careful_ctrl") - sizeof(struct))
