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
    "ctrl": {
        "type": enum_names("careful_type", "CAREFUL_"),
        "protocol": {
            repairs | value: name + (", repairs" if repairs else "")
            for value, name in enum_names("careful_protocol", "CAREFUL_PROTOCOL_").items()
            for repairs in (0, int(lib.CAREFUL_SAYS_REPAIRS))
        },
        "question": enum_names("careful_sync", "CAREFUL_SYNC_"),
        "refusal": enum_names("careful_refusal", "CAREFUL_REFUSED_"),
        "seal": enum_names("careful_seal", "CAREFUL_SEAL_"),
        "cipher": enum_names("careful_cipher", "CAREFUL_CIPHER_") | {3: "any"},
    },
    "proved": {},
    "keyed": {"type": enum_names("careful_type", "CAREFUL_")},
    "ping_answer": {
        "type": enum_names("careful_type", "CAREFUL_"),
        "stage": enum_names("careful_stage", "CAREFUL_STAGE_"),
        "scratch": enum_names("careful_scratch", "CAREFUL_SCRATCH_"),
    },
}
#: Type of control message -> its body (wire.h), and the fields that it uses, each under its meaning
#: there if that is not its name. "" is a HELLO without a token.
_COUNTS = "counts nonce cookie seq_sent seq_rcvd returned withheld"
_TERMS = "terms nonce token cookie slot queue window buffer_bytes frame_bytes protocol seal cipher"
_TERMS += " reserve lost hold_ms name minor"
MEANINGS = {
    "": "opening nonce queues",
    "hello": _TERMS,
    "challenge": "opening nonce token queue queues challenges",
    "welcome": _TERMS,
    "refuse": "refuse nonce peers why=refusal",
    "sync": f"{_COUNTS} question",
    "sync_ack": f"{_COUNTS} question=in_device",
    "gone": "terms nonce cookie",
    "bye": "terms cookie",
    "train_ask": "train nonce=train cookie frames smallest hold_ms",
    "train_sent": "train nonce=train cookie frames",
    "train_over": "train nonce=train cookie",
    "missing": "missing cookie before last seq_rcvd arrived=missing",
}
_NUMBERS = ("CTRL_BIT", "F_FIRST", "HELLO", "PING_ANSWER", "PORT_DEFAULT", "WELCOME", "WIRE_SEALED")
_HEX = ("cookie", "check", "payload_crc", "nonce", "token", "incarnation")


def _table(names: Mapping[int, str]) -> str:
    values = ", ".join(f'[{value}] = "{text}"' for value, text in names.items())
    return f"{{ {values} }}"


def _declared(struct: str, field: Field, meaning: str = "") -> str:
    """Returns a field's Lua object. A field of several meanings has an object for each."""
    label = meaning or field.name
    name = f"careful.{struct}.{label}"
    if field.count is not None:
        kind = "string" if meaning else "stringz" if field.name == "name" else "bytes"
        return f'ProtoField.{kind}("{name}", "{label}")'
    kind = f"uint{8 * field.item_bytes}"
    base = "base.HEX" if label in _HEX else "base.DEC"
    names = VALUES[struct].get(label, {})
    more = f", {_table(names)}" if names else ""
    return f'ProtoField.{kind}("{name}", "{label}", {base}{more})'


def _control() -> Iterator[str]:
    """Yields the fields of control messages, and those that each type uses, by offset."""
    types = {name: value for value, name in VALUES["ctrl"]["type"].items()}
    declared: dict[str, str] = {}
    shown = []
    for name, words in MEANINGS.items():
        body, *used = f"{words} version type bytes check incarnation".split()
        begins = sizeof("careful_ctrl") - sizeof(f"careful_{body}")
        fields = {one.name: (one.offset, one) for one in layout("careful_ctrl")}
        fields |= {one.name: (begins + one.offset, one) for one in layout(f"careful_{body}")}
        found = {}
        for word in used:
            field, _, meaning = word.partition("=")
            at, one = fields[field]
            declared[meaning or field] = _declared("ctrl", one, meaning)
            found[at] = f"{{ {at}, {one.size}, ctrl.{meaning or field} }}"
        shown.append(
            f"  [{types.get(name, 0)}] = {{ {', '.join(found[at] for at in sorted(found))} }},"
        )
    yield from ("local ctrl = {", *(f"  {name} = {made}," for name, made in declared.items()), "}")
    yield from ("local used = {", *shown, "}")
    yield f"local token_at = {fields['token'][0]}"
    for name in ("before", "last", "arrived"):
        yield f"local {name}_at = {fields[name][0]}"
    yield f"local arrived_bytes = {fields['arrived'][1].size}"


def _lines() -> Iterator[str]:
    version = int(lib.CAREFUL_WIRE_VERSION)
    yield f"-- careful's wire format, version {version}; by tools/gen/dissector.py"
    yield 'local careful = Proto("careful", "careful")'
    yield "local structs = {}"
    yield "local fields = {}"
    yield from _control()
    for struct in VALUES:
        members = layout(f"careful_{struct}")
        yield f"structs.{struct} = {{ bytes = {sizeof(f'careful_{struct}')},"
        inner, dot, _ = members[0].name.partition(".")  # a struct with its own fields
        if dot:
            yield f'  begins = "{inner}",'
        yield "  fields = {"
        for one in members:
            if "." not in one.name:
                made = f"ctrl.{one.name}" if struct == "ctrl" else _declared(struct, one)
                yield f"    {{ {one.offset}, {one.size}, {made} }},"
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
  for _, one in ipairs(struct ~= structs.ctrl and struct.fields or {}) do
    fields[#fields + 1] = one[3]
  end
end
for _, one in ipairs(flags) do
  fields[#fields + 1] = one
end
for _, one in pairs(ctrl) do
  fields[#fields + 1] = one
end
careful.fields = fields

local function text(seq)
  return string.format("%d", seq % 4294967296)
end

-- Returns the numbers that MISSING names, for example "1001-1003, 1007".
local function missing(buffer, at)
  local before, bits = buffer(at + before_at, 4):uint(), buffer(at + arrived_at, arrived_bytes)
  local count = (buffer(at + last_at, 4):uint() - before) % 4294967296
  local runs, first = {}, nil
  count = math.min(count, 8 * arrived_bytes)
  for i = 1, count + 1 do
    if i <= count and bits:bitfield(i + 6 - 2 * ((i - 1) % 8), 1) == 0 then
      first = first or i
    elseif first then
      local last = i - 1 > first and "-" .. text(before + i - 1) or ""
      runs[#runs + 1] = text(before + first) .. last
      first = nil
    end
  end
  return table.concat(runs, ", ")
end

-- Returns the fields that a control message uses; all but the body if its type is not known.
local function used_fields(buffer, at)
  local kind = buffer(at + 1, 1):uint()
  if kind == number.HELLO and buffer:len() >= at + structs.ctrl.bytes and
      buffer(at + token_at, 8):uint64() == UInt64(0) then
    kind = 0
  end
  return used[kind] or structs.ctrl.fields
end

-- Adds the struct that begins at `at`, as far as the datagram goes.
local function add(name, buffer, at, root)
  local struct = structs[name]
  local tree = root:add(careful, buffer(at, math.min(struct.bytes, buffer:len() - at)), name)
  if struct.begins then
    add(struct.begins, buffer, at, tree)
  end
  for _, one in ipairs(name == "ctrl" and used_fields(buffer, at) or struct.fields) do
    if at + one[1] + one[2] > buffer:len() then
      break
    elseif one[3] == ctrl.missing then
      tree:add(one[3], buffer(at + one[1], one[2]), missing(buffer, at))
    else
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
