"""Access to the C declarations: layouts, enum names, constants, big-endian structs.

Everything comes from the generated binding (cffi, API mode). Nothing that a C header declares is
declared again here.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from careful.errors import CarefulError

try:
    from careful._binding import ffi as ffi
    from careful._binding import lib as lib
except ImportError as error:
    text = f"cannot be loaded: {error}; reinstall careful, or what it names"
    raise CarefulError(errno.ENOPKG, text, "libcareful") from None

#: An object of the binding. cffi has no types; careful.h and abi.h declare the fields.
CData = Any
#: A value for a field of a C struct: cffi, or struct, checks it.
Value = Any
#: An object with a contiguous buffer: bytes, an mmap, a NumPy array (3.12: collections.abc.Buffer).
Buffer = Any

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True)
class Field:
    """A field of a C struct; a nested struct is replaced by its members, a union by its first.

    Attributes:
        name: its name; members of a nested struct read outer.inner.
        offset: from the start of the struct, bytes.
        item_bytes: of one integer.
        count: of integers; None if the field is no array.
    """

    name: str
    offset: int
    item_bytes: int
    count: int | None

    @property
    def size(self) -> int:
        return self.item_bytes * (1 if self.count is None else self.count)


def sizeof(name: str) -> int:
    """Returns the bytes of `struct NAME`."""
    return int(ffi.sizeof(f"struct {name}"))


def error_text(error: CData, spell: Callable[[str], str] = str) -> str:
    """Returns the text of a `struct careful_error *`, after its option as the user spells it."""
    text = str(ffi.string(error.text).decode(errors="replace"))
    return f"{spell(ffi.string(error.option).decode())}: {text}" if error.option else text


def _fields(ctype: CData, prefix: str, base: int) -> list[Field]:
    found: list[Field] = []
    for name, field in ctype.fields:
        kind, offset = field.type, base + field.offset
        if found and offset < found[-1].offset + found[-1].size:
            continue  # in a union, the first member stands for all
        if kind.kind in ("struct", "union"):
            found += _fields(kind, f"{prefix}{name}.".removeprefix("."), offset)
        elif kind.kind == "array":
            size = ffi.sizeof(kind.item)
            found.append(Field(prefix + name, offset, size, kind.length))
        else:
            found.append(Field(prefix + name, offset, ffi.sizeof(kind), None))
    return found


@cache
def layout(name: str) -> tuple[Field, ...]:
    """Returns the fields of `struct NAME` in order, as the C compiler laid them out."""
    return tuple(_fields(ffi.typeof(f"struct {name}"), "", 0))


@cache
def enum_names(name: str, prefix: str) -> dict[int, str]:
    """Returns value -> short lower-case name of each constant of `enum NAME`.

    Args:
        name: of the enum.
        prefix: of the constants, left out of the short names; a constant without the prefix is a
            count, and left out.
    """
    elements: dict[str, int] = ffi.typeof(f"enum {name}").relements
    return {
        value: key.removeprefix(prefix).lower()
        for key, value in sorted(elements.items(), key=lambda item: item[1])
        if key.startswith(prefix)
    }


@cache
def flag_names(prefix: str) -> dict[int, str]:
    """Returns bit -> short lower-case name of each constant that begins with `prefix`."""
    found = {getattr(lib, name): name for name in dir(lib) if name.startswith(prefix)}
    return {bit: found[bit].removeprefix(prefix).lower() for bit in sorted(found)}


@cache
def _wire_format(name: str) -> tuple[struct.Struct, tuple[Field, ...]]:
    """Returns the format of a struct of wire.h or block.h, in which every integer is big-endian."""
    text, at = ">", 0
    for field in layout(name):
        assert field.offset == at, f"struct {name} has a hole before {field.name}"
        if field.item_bytes == 1 and field.count is not None:
            text += f"{field.count}s"
        else:
            text += f"{field.count or 1}{_CODES[field.item_bytes]}"
        at += field.size
    assert at == sizeof(name), f"struct {name} has a hole at its end"
    return struct.Struct(text), layout(name)


def pack(name: str, /, **values: Value) -> bytes:
    """Returns the bytes of a struct of wire.h or block.h; a field that is not given is 0.

    Raises:
        TypeError: no such field.
        struct.error: a value does not fit its field.
    """
    form, fields = _wire_format(name)
    flat: list[Value] = []
    for field in fields:
        value = values.pop(field.name, None)
        if field.count is None:
            flat.append(value or 0)
        elif field.item_bytes == 1:
            flat.append(value or b"")
        else:
            flat += value or [0] * field.count
    if values:
        raise TypeError(f"struct {name} has no field {', '.join(values)}")
    return form.pack(*flat)


def unpack(name: str, data: bytes | memoryview, offset: int = 0) -> dict[str, Value]:
    """Returns field -> value of a struct of wire.h or block.h at `offset`; arrays are tuples.

    Raises struct.error if data ends before the struct does.
    """
    form, fields = _wire_format(name)
    values = form.unpack_from(data, offset)
    found: dict[str, Value] = {}
    at = 0
    for field in fields:
        if field.count is None or field.item_bytes == 1:
            found[field.name] = values[at]
            at += 1
        else:
            found[field.name] = values[at : at + field.count]
            at += field.count
    return found
