"""Scapy layers of wire.h and block.h: names, offsets and sizes are the C compiler's, through cffi.

Owns what declarations do not say: the order of layers, and the fields that are computed when left
open. Only this module imports scapy. Call netns.setns() before the import, since scapy keeps
sockets of its first namespace.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import xxhash
from careful import _abi
from careful._abi import enum_names, ffi, flag_names, lib
from scapy.fields import (
    ByteEnumField,
    ByteField,
    ConditionalField,
    FieldListField,
    FlagsField,
    IntEnumField,
    IntField,
    LongField,
    PacketListField,
    ShortEnumField,
    ShortField,
    StrFixedLenField,
    StrLenField,
    XIntField,
    XLongField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, Raw, bind_layers

_PLAIN: dict[int, Any] = {1: ByteField, 2: ShortField, 4: IntField, 8: LongField}
_HEX: dict[int, Any] = {4: XIntField, 8: XLongField}
_ENUM = {1: ByteEnumField, 2: ShortEnumField, 4: IntEnumField}
#: Fields that read better in hexadecimal.
_HEX_NAMES = ("cookie", "check", "payload_crc", "nonce", "token", "incarnation")

FRAME_TYPES = {
    value: name
    for value, name in enum_names("careful_type", "CAREFUL_").items()
    if not value & lib.CAREFUL_CTRL_BIT
}
CONTROL_TYPES = {
    value: name
    for value, name in enum_names("careful_type", "CAREFUL_").items()
    if value & lib.CAREFUL_CTRL_BIT
}
STAGES = {
    value: name for value, name in enum_names("careful_stage", "CAREFUL_STAGE_").items() if value
}
SCRATCHES = enum_names("careful_scratch", "CAREFUL_SCRATCH_")
AM_KINDS = enum_names("careful_am_kind", "CAREFUL_AM_")
#: Bit -> name of each enum careful_block_flag.
BLOCK_FLAGS = enum_names("careful_block_flag", "CAREFUL_BLOCK_")
HANDLERS = enum_names("careful_block_handler", "CAREFUL_BLOCK_")
ITEM_OPS = enum_names("careful_block_item_op", "CAREFUL_ITEM_")
ALGORITHMS = enum_names("careful_block_algorithm", "CAREFUL_BLOCK_")


def _flags(name: str, size: int, bits: dict[int, str]) -> Any:
    names = [bits.get(1 << index, f"bit{index}") for index in range(8 * size)]
    return FlagsField(name, 0, 8 * size, names)


def scapy_name(field: _abi.Field) -> str:
    """Returns a field's name for scapy, where `name` means the layer."""
    name = field.name.rpartition(".")[2]
    return "node_name" if name == "name" else name


def _field(field: _abi.Field, enums: dict[str, dict[int, str]], flags: dict[int, str]) -> Any:
    """Returns the scapy field for a field of a struct; check fields are computed when open."""
    name, size = scapy_name(field), field.item_bytes
    default: int | None = None if name in ("check", "payload_crc", "frag_bytes") else 0
    if field.count is not None and size == 1:
        return StrFixedLenField(name, b"", field.count)
    if field.count is not None:
        count = field.count
        item: Any = _PLAIN[size]("", 0)
        zeros: Any = [0] * count
        return FieldListField(name, zeros, item, count_from=lambda _: count)
    if name == "flags" and flags:
        return _flags(name, size, flags)
    if name in enums:
        return _ENUM[size](name, 0, enums[name])
    return (_HEX if name in _HEX_NAMES else _PLAIN)[size](name, default)


def fields_of(
    struct: str,
    enums: dict[str, dict[int, str]] | None = None,
    flags: dict[int, str] | None = None,
) -> list[Any]:
    """Returns the scapy fields of a struct of wire.h or block.h, in order.

    Args:
        struct: its name, without "struct".
        enums: field -> names of its values.
        flags: names of the bits of its field `flags`.
    """
    return [_field(one, enums or {}, flags or {}) for one in _abi.layout(struct)]


def _bytes(name: str, count: str) -> Any:
    """Returns a field whose size is in the field `count`."""
    return StrLenField(name, b"", length_from=lambda packet: getattr(packet, count))


def _with(struct: str, data: bytes, name: str, value: int) -> bytes:
    """Returns the bytes of a struct with one integer replaced."""
    field = next(one for one in _abi.layout(struct) if one.name == name)
    raw = value.to_bytes(field.item_bytes, "big")
    return data[: field.offset] + raw + data[field.offset + field.item_bytes :]


_HDR, _AM, _CTRL, _ANSWER = (
    _abi.sizeof(f"careful_{name}") for name in ("hdr", "am", "ctrl", "ping_answer")
)


class CarefulHdr(Packet):
    """The header of a frame; check, payload_crc and frag_bytes are computed when open."""

    name = "careful"
    fields_desc = fields_of(
        "careful_hdr", {"type": FRAME_TYPES, "stage_limit": STAGES}, flag_names("CAREFUL_F_")
    )

    def __init__(self, *args: Any, **fields: Any) -> None:
        if not args and "version" not in fields:
            fields["version"] = int(lib.CAREFUL_WIRE_VERSION)
        super().__init__(*args, **fields)

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **__: Any) -> type[Packet]:
        """Returns CarefulCtrl, or the answer to a ping, by type."""
        if _pkt is not None and len(_pkt) > 1 and _pkt[1] == lib.CAREFUL_PING_ANSWER:
            return CarefulStageAnswer
        if _pkt is not None and len(_pkt) > 1 and _pkt[1] & lib.CAREFUL_CTRL_BIT:
            return CarefulCtrl
        return cls

    def _overhead(self) -> int:
        """Returns the bytes after the header that are not payload: careful_am and digest."""
        flags = int(self.flags)
        digest = flags & lib.CAREFUL_F_DIGEST and flags & lib.CAREFUL_F_LAST
        first = _AM if flags & lib.CAREFUL_F_FIRST else 0
        return first + (int(lib.CAREFUL_DIGEST_BYTES) if digest else 0)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in what was left open."""
        header = pkt[:_HDR]
        if self.frag_bytes is None:
            nbytes = max(0, len(pay) - self._overhead())
            header = _with("careful_hdr", header, "frag_bytes", nbytes & 0xFFFF)
        if self.payload_crc is None:
            covered = pay[:_AM] if int(self.flags) & lib.CAREFUL_F_BULK else pay
            if int(self.flags) & lib.CAREFUL_F_BULK and not int(self.flags) & lib.CAREFUL_F_FIRST:
                covered = b""
            crc = lib.careful_wire_crc32c(covered, len(covered)) if covered else 0
            header = _with("careful_hdr", header, "payload_crc", crc)
        if self.check is None:
            header = _with("careful_hdr", header, "check", 0)
            check = lib.careful_wire_hdr_check(ffi.from_buffer(header))
            header = _with("careful_hdr", header, "check", check)
        return header + pkt[_HDR:] + pay

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Returns CarefulAm for a first fragment, else the layer by flags."""
        if int(self.flags) & lib.CAREFUL_F_FIRST and len(payload) >= _AM:
            return CarefulAm
        return _after(self)


def _after(header: CarefulHdr) -> type[Packet]:
    """Returns the layer of a frame's payload."""
    flags = int(header.flags)
    if header.type != lib.CAREFUL_DATA or not flags & lib.CAREFUL_F_BULK:
        return Raw
    return CarefulAbort if flags & lib.CAREFUL_F_ABORT else CarefulBulk


class CarefulAm(Packet):
    """The first struct of a message."""

    name = "careful-am"
    fields_desc = fields_of(
        "careful_am", {"kind": AM_KINDS, "handler": HANDLERS}, flag_names("CAREFUL_AM_WANT")
    )

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Returns the layer of a bulk message's payload, or of a request to the block service."""
        header = self.underlayer
        if isinstance(header, CarefulHdr) and (layer := _after(header)) is not Raw:
            return layer
        if self.kind != lib.CAREFUL_AM_REQUEST:
            return Raw
        asked, nbytes = _requests().get(int(self.handler), (Raw, 0))
        return asked if len(payload) >= nbytes else Raw


def _header(packet: Packet) -> CarefulHdr | None:
    """Returns the frame header above a payload, if any."""
    above = packet.underlayer
    if isinstance(above, CarefulAm):
        above = above.underlayer
    return above if isinstance(above, CarefulHdr) else None


def _data_bytes(packet: Packet) -> int:
    """Returns the payload bytes of a bulk fragment."""
    header = _header(packet)
    return int(header.frag_bytes) if header is not None else 0xFFFF


def _has_digest(packet: Packet) -> bool:
    """Reports whether the payload's digest ends this fragment."""
    header, ends = _header(packet), int(lib.CAREFUL_F_DIGEST | lib.CAREFUL_F_LAST)
    return header is not None and int(header.flags) & ends == ends


class CarefulBulk(Packet):
    """Payload of a fragment of a store or of a get; the last may end in a digest.

    An open digest is computed over this fragment alone, which is right for a message of one
    fragment.
    """

    name = "careful-bulk"
    fields_desc = [  # noqa: RUF012
        StrLenField("data", b"", length_from=_data_bytes),
        ConditionalField(_HEX[8]("digest", None), _has_digest),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Compute the digest, unless it was given."""
        if _has_digest(self) and self.digest is None:
            size = int(lib.CAREFUL_DIGEST_BYTES)
            pkt = pkt[:-size] + xxhash.xxh3_64_digest(pkt[:-size])
        return pkt + pay


class CarefulAbort(Packet):
    """Why the sender of a bulk message cannot continue."""

    name = "careful-abort"
    fields_desc = [IntField("errno", 0)]  # noqa: RUF012


class _Control(Packet):
    """The common part of control messages; a subclass names its struct."""

    struct = ""
    defaults: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, *args: Any, **fields: Any) -> None:
        if not args:
            fields = {"version": int(lib.CAREFUL_WIRE_VERSION)} | self.defaults | fields
        super().__init__(*args, **fields)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Compute the check, unless it was given."""
        if self.check is None:
            pkt = _with(self.struct, pkt, "check", 0)
            check = lib.careful_wire_message_check(ffi.from_buffer(pkt), len(pkt))
            pkt = _with(self.struct, pkt, "check", check)
        return pkt + pay

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """No layer of ours follows."""
        return Raw


class CarefulCtrl(_Control):
    """A control message with the body `terms`; check and bytes are computed when open."""

    name = "careful-ctrl"
    struct = "careful_ctrl"
    defaults = {"bytes": _CTRL}  # noqa: RUF012
    fields_desc = fields_of(struct, {"type": CONTROL_TYPES})


class CarefulStageAnswer(_Control):
    """The answer to a ping; check and bytes are computed when open."""

    name = "careful-stage-answer"
    struct = "careful_ping_answer"
    defaults = {"type": int(lib.CAREFUL_PING_ANSWER), "bytes": _ANSWER}  # noqa: RUF012
    fields_desc = fields_of(struct, {"type": CONTROL_TYPES, "stage": STAGES, "scratch": SCRATCHES})


_OPEN_STRUCT, _ENTRY_STRUCT = "careful_block_open", "careful_block_entry"


class CarefulBlockOpen(Packet):
    """Payload of OPEN, COMMIT and MKDIR, with the path that follows."""

    name = "careful-block-open"
    fields_desc = [*fields_of(_OPEN_STRUCT, flags=BLOCK_FLAGS), _bytes("path", "path_bytes")]  # noqa: RUF012

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Count the path, unless that was given."""
        if not self.path_bytes and self.path:
            pkt = _with(_OPEN_STRUCT, pkt, "path_bytes", len(self.path))
        return pkt + pay


class CarefulBlockRange(Packet):
    """Payload of DIGEST and EXTENTS."""

    name = "careful-block-range"
    fields_desc = fields_of("careful_block_range", {"algorithm": ALGORITHMS})


class CarefulBlockBatch(Packet):
    """Payload of BATCH; the items themselves are stored before."""

    name = "careful-block-batch"
    fields_desc = fields_of("careful_block_batch")


class CarefulBlockItem(Packet):
    """One item of a batch, with what follows it, padded to 8 bytes."""

    name = "careful-block-item"
    fields_desc = [  # noqa: RUF012
        *fields_of("careful_block_item", {"op": ITEM_OPS}),
        _bytes("item_name", "name_bytes"),
        _bytes("text", "text_bytes"),
        _bytes("xattrs", "xattrs_bytes"),
        _bytes("data", "data_bytes"),
        StrLenField("zeros", b"", length_from=lambda item: _item_padding(item)),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Count the parts and pad, unless that was given."""
        parts = {
            "name_bytes": self.item_name,
            "text_bytes": self.text,
            "xattrs_bytes": self.xattrs,
            "data_bytes": self.data,
        }
        for count, value in parts.items():
            if not getattr(self, count) and value:
                pkt = _with("careful_block_item", pkt, count, len(value))
        return pkt + (b"" if self.zeros else bytes(-len(pkt) % 8)) + pay

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """The rest is the next item."""
        return b"", s


def _item_padding(item: Packet) -> int:
    counts = (item.name_bytes, item.text_bytes, item.xattrs_bytes, item.data_bytes)
    return -sum(map(int, counts)) % 8


@cache
def _requests() -> dict[int, tuple[type[Packet], int]]:
    """Handler of the block service -> the layer of its request, and its least bytes."""
    found = {
        lib.CAREFUL_BLOCK_OPEN: (CarefulBlockOpen, _OPEN_STRUCT),
        lib.CAREFUL_BLOCK_COMMIT: (CarefulBlockOpen, _OPEN_STRUCT),
        lib.CAREFUL_BLOCK_MKDIR: (CarefulBlockOpen, _OPEN_STRUCT),
        lib.CAREFUL_BLOCK_DIGEST: (CarefulBlockRange, "careful_block_range"),
        lib.CAREFUL_BLOCK_EXTENTS: (CarefulBlockRange, "careful_block_range"),
        lib.CAREFUL_BLOCK_BATCH: (CarefulBlockBatch, "careful_block_batch"),
    }
    return {handler: (layer, _abi.sizeof(name)) for handler, (layer, name) in found.items()}


class CarefulBlockAttr(Packet):
    """Payload of a reply to OPEN, COMMIT, CLOSE and STAT."""

    name = "careful-block-attr"
    fields_desc = fields_of("careful_block_attr")


class CarefulBlockEntry(Packet):
    """One record of a listing, with its name and a symlink's target, padded to 8 bytes."""

    name = "careful-block-entry"
    fields_desc = [  # noqa: RUF012
        *fields_of(_ENTRY_STRUCT),
        _bytes("entry_name", "name_bytes"),
        _bytes("target", "target_bytes"),
        StrLenField("zeros", b"", length_from=lambda entry: _entry_padding(entry)),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Count name and target and pad, unless that was given."""
        for count, value in (("name_bytes", self.entry_name), ("target_bytes", self.target)):
            if not getattr(self, count) and value:
                pkt = _with(_ENTRY_STRUCT, pkt, count, len(value))
        return pkt + (b"" if self.zeros else bytes(-len(pkt) % 8)) + pay

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """The rest is the next record."""
        return b"", s


def _entry_padding(entry: Packet) -> int:
    return -(int(entry.name_bytes) + int(entry.target_bytes)) % 8


class CarefulListing(Packet):
    """The bytes of a listing, read through LIST's handle."""

    name = "careful-listing"
    fields_desc = [PacketListField("entries", [], CarefulBlockEntry)]  # noqa: RUF012


def bind(port: int) -> None:
    """Dissect UDP datagrams to this port as careful's."""
    bind_layers(UDP, CarefulHdr, dport=port)


bind(int(lib.CAREFUL_PORT_DEFAULT))
