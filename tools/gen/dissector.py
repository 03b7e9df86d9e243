"""Writes a Wireshark dissector of the wire format: `dissector.py FILE.lua`.

Names, offsets and sizes of fields come from the binding; values have the names of their enums. Owns
the choice of the struct for a datagram. Use it with `tshark -X lua_script:FILE.lua`, not as root,
or put it into Wireshark's plugin folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from careful._abi import Field, enum_names, flag_names, layout, lib, sizeof

#: Struct -> field -> names of its values.
VALUES = {
    "hdr": {
        "version": {
            int(lib.CAREFUL_WIRE_VERSION): "not sealed",
            int(lib.CAREFUL_WIRE_SEALED): "sealed",
        },
        "type": enum_names("careful_type", "CAREFUL_"),
        "stage_limit": enum_names("careful_stage", "CAREFUL_STAGE_"),
    },
    "am": {"kind": enum_names("careful_am_kind", "CAREFUL_AM_")},
    "seal_end": {},
    "ctrl": {"type": enum_names("careful_type", "CAREFUL_")},
    "proved": {},
    "keyed": {"type": enum_names("careful_type", "CAREFUL_")},
    "ping_answer": {
        "type": enum_names("careful_type", "CAREFUL_"),
        "stage": enum_names("careful_stage", "CAREFUL_STAGE_"),
        "scratch": enum_names("careful_scratch", "CAREFUL_SCRATCH_"),
    },
}
_NUMBERS = ("CTRL_BIT", "F_FIRST", "HELLO", "PING_ANSWER", "PORT_DEFAULT", "WELCOME", "WIRE_SEALED")
_HEX = ("cookie", "check", "payload_crc", "nonce", "token", "incarnation")


def _table(names: Mapping[int, str]) -> str:
    values = ", ".join(f'[{value}] = "{text}"' for value, text in names.items())
    return f"{{ {values} }}"


def _declared(struct: str, field: Field) -> str:
    """Returns a field's Lua object."""
    name = f"careful.{struct}.{field.name}"
    if field.count is not None:
        kind = "stringz" if field.name == "name" else "bytes"
        return f'ProtoField.{kind}("{name}", "{field.name}")'
    kind = f"uint{8 * field.item_bytes}"
    base = "base.HEX" if field.name in _HEX else "base.DEC"
    names = VALUES[struct].get(field.name, {})
    more = f", {_table(names)}" if names else ""
    return f'ProtoField.{kind}("{name}", "{field.name}", {base}{more})'


def _lines() -> Iterator[str]:
    version = int(lib.CAREFUL_WIRE_VERSION)
    yield f"-- careful's wire format, version {version}; by tools/gen/dissector.py"
    yield 'local careful = Proto("careful", "careful")'
    yield "local structs = {}"
    yield "local fields = {}"
    for struct in VALUES:
        members = layout(f"careful_{struct}")
        yield f"structs.{struct} = {{ bytes = {sizeof(f'careful_{struct}')},"
        inner, dot, _ = members[0].name.partition(".")  # a struct with its own fields
        if dot:
            yield f'  begins = "{inner}",'
        yield "  fields = {"
        for one in members:
            if "." not in one.name:
                yield f"    {{ {one.offset}, {one.size}, {_declared(struct, one)} }},"
        yield "} }"
    (next_at,) = (one.offset for one in layout("careful_am") if one.name == "next")
    yield f"local next_at = {next_at}"
    yield f"local types = {_table(VALUES['hdr']['type'])}"
    yield f"local kinds = {max(enum_names('careful_am_kind', 'CAREFUL_AM_'))}"
    yield "local flags = {"
    for bit, text in flag_names("CAREFUL_F_").items():
        made = f'ProtoField.bool("careful.hdr.flags.{text}", "{text}", 8, nil, {bit})'
        yield f"  {made},"
    yield "}"
    numbers = ", ".join(f"{name} = {int(getattr(lib, f'CAREFUL_{name}'))}" for name in _NUMBERS)
    yield f"local number = {{ {numbers} }}"
    yield _REST


_REST = """
for _, struct in pairs(structs) do
  for _, one in ipairs(struct.fields) do
    fields[#fields + 1] = one[3]
  end
end
for _, one in ipairs(flags) do
  fields[#fields + 1] = one
end
careful.fields = fields

-- Adds the struct that begins at `at`, as far as the datagram goes.
local function add(name, buffer, at, root)
  local struct = structs[name]
  local tree = root:add(careful, buffer(at, math.min(struct.bytes, buffer:len() - at)), name)
  if struct.begins then
    add(struct.begins, buffer, at, tree)
  end
  for _, one in ipairs(struct.fields) do
    if at + one[1] + one[2] <= buffer:len() then
      local item = tree:add(one[3], buffer(at + one[1], one[2]))
      if name == "hdr" and one[1] == 2 then
        for _, flag in ipairs(flags) do
          item:add(flag, buffer(at + 2, 1))
        end
      end
    end
  end
  return at + struct.bytes
end

local function control(kind, bytes)
  if kind == number.PING_ANSWER then
    return "ping_answer"
  end
  if bytes == structs.keyed.bytes and (kind == number.HELLO or kind == number.WELCOME) then
    return "keyed"
  end
  return bytes == structs.proved.bytes and "proved" or "ctrl"
end

-- Returns the end of the message at `at`, or nil. Encrypted bytes hardly ever have a known kind and
-- a length that there is room for.
local function message_end(buffer, at, last)
  if at >= last then
    return nil
  end
  local kind = buffer(at, 1):uint()
  local bytes = last >= at + next_at + 4 and buffer(at + next_at, 4):uint() or 0
  if kind < 1 or kind > kinds or bytes > last - at then
    return nil
  end
  return bytes < structs.am.bytes and last or at + bytes
end

function careful.dissector(buffer, info, root)
  if buffer:len() < 4 then
    return 0
  end
  info.cols.protocol = "careful"
  local kind, set = buffer(1, 1):uint(), buffer(2, 1):uint()
  local sealed = buffer(0, 1):uint() == number.WIRE_SEALED
  info.cols.info = (sealed and "sealed " or "") .. (types[kind] or "type " .. kind)
  if kind >= number.CTRL_BIT then
    add(control(kind, buffer:len()), buffer, 0, root)
    return buffer:len()
  end
  local at = add("hdr", buffer, 0, root)
  local last = buffer:reported_len()
  if sealed then
    last = last - structs.seal_end.bytes
    if last >= at and last < buffer:len() then
      add("seal_end", buffer, last, root)
    end
  end
  last = math.min(last, buffer:len())
  local behind = set % (2 * number.F_FIRST) >= number.F_FIRST and message_end(buffer, at, last)
  while behind do
    add("am", buffer, at, root)
    at = behind
    behind = message_end(buffer, at, last)
  end
  return buffer:len()
end

DissectorTable.get("udp.port"):add(number.PORT_DEFAULT, careful)"""


def main() -> None:
    Path(sys.argv[1]).write_text("\n".join(_lines()) + "\n")


if __name__ == "__main__":
    main()
