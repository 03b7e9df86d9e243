"""Version numbers of interfaces: a number must be raised when its interface changes.

versions.json has the layouts and values of each number since it was last raised. They must not
change under the same number; additions are allowed. After raising a number run `python
tests/datapath/include/test_versions.py`, which records nothing new under a recorded number. The
wire also has a minor number: if it is raised, the end of a field that was 0 may become a field of
its own.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from careful._abi import layout, lib
from careful.versions import versions

KEPT = Path(__file__).with_name("versions.json")
HEADERS = Path(__file__).parents[3] / "datapath" / "include" / "careful"
#: Number -> the headers of its interface.
INTERFACES = {
    "wire": ("wire.h", "block.h"),
    "socket": ("ipc.h", "careful.h", "ping.h"),
    "abi": ("abi.h",),
}
#: The numbers themselves, and counts of other constants.
_NO_PROMISE = re.compile(
    r"CAREFUL_(\w*VERSION|WIRE_MINOR|COUNTERS|STAGES|BOUNDS|CHECKS|XDP_COUNTERS|\w+_MAX)$"
)


def declared(number: str) -> dict[str, Any]:
    """Returns layouts of structs and values of constants in a number's headers."""
    structs: dict[str, Any] = {}
    constants: dict[str, int] = {}
    for name in INTERFACES[number]:
        text = re.sub(r"/\*.*?\*/", "", (HEADERS / name).read_text(), flags=re.S)
        for struct in re.findall(r"^\s*struct (\w+) \{", text, re.M):
            try:
                fields = layout(struct)
            except (TypeError, KeyError):  # holds pointers: not between programs
                continue
            structs[struct] = [[one.name, one.offset, one.size] for one in fields]
        for body in re.findall(r"^enum(?: \w+)? \{(.*?)^\};", text, re.M | re.S):
            for constant in re.findall(r"\b(CAREFUL_\w+)\s*(?:=[^,]*)?(?:,|$)", body):
                if not _NO_PROMISE.match(constant):
                    constants[constant] = int(getattr(lib, constant))
    return {"structs": structs, "constants": constants}


def numbers() -> dict[str, list[int]]:
    """Returns each number, and the wire's minor number."""
    found = versions()
    minor = {"wire": [found["wire_minor"]]}
    return {name: [found[f"{name}_version"], *minor.get(name, [])] for name in INTERFACES}


def cut(was: Any, now: Any) -> bool:
    """Reports whether a struct differs only in fields that end earlier, whose rest became new
    fields.
    """
    if not isinstance(was, list) or not now:
        return False
    ends = [offset for _, offset, _ in now[1:]] + [was[-1][1] + was[-1][2]]
    whole = all(offset + size == end for (_, offset, size), end in zip(now, ends, strict=True))
    found = {name: (offset, size) for name, offset, size in now}
    return whole and all(
        name in found and found[name][0] == offset and found[name][1] <= size
        for name, offset, size in was
    )


def changed(before: dict[str, Any], now: dict[str, Any], may_cut: bool = False) -> list[str]:
    """Returns the layouts that changed."""
    return [
        f"{kind} {name}"
        for kind in ("structs", "constants")
        for name, was in before[kind].items()
        if now[kind].get(name) != was and not (may_cut and cut(was, now[kind].get(name)))
    ]


def recorded() -> dict[str, Any]:
    """Returns the present layout of each number."""
    return {name: {"version": value, **declared(name)} for name, value in numbers().items()}


def unraised(kept: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """Returns the layouts that changed although their number was not raised.

    Readers of maps ask carefuld's socket first, so the socket's number is raised with the maps'.
    """
    same = [name for name, one in kept.items() if made[name]["version"][0] <= one["version"][0]]
    found = [
        f"{name} {what}"
        for name in same
        for what in changed(
            kept[name], made[name], may_cut=made[name]["version"] > kept[name]["version"]
        )
    ]
    if "socket" in same and "abi" not in same:
        found.append("socket: only the maps' number was raised")
    return found


@pytest.mark.parametrize("number", INTERFACES)
def test_versions__a_number_keeps_its_layout(number: str) -> None:
    kept = json.loads(KEPT.read_text())[number]
    now = numbers()[number]
    assert now == kept["version"], f"{number} is now {now}: run this file to record it"
    differing = changed(kept, declared(number))
    assert not differing, f"raise the {number} version: {', '.join(differing)}"


def test_versions__a_change_is_found() -> None:
    kept = json.loads(KEPT.read_text())
    for number, name in (("wire", "careful_hdr"), ("socket", "careful_ipc")):
        assert not changed(kept[number], declared(number))
        for change in (lambda fields: fields.pop(), lambda fields: fields.insert(1, ["x", 1, 1])):
            now = declared(number)
            change(now["structs"][name])
            assert changed(kept[number], now) == [f"structs {name}"]
    now = declared("wire")
    now["constants"]["CAREFUL_HELLO"] += 1
    now["structs"]["careful_new"] = []
    assert changed(kept["wire"], now) == ["constants CAREFUL_HELLO"]


def test_versions__a_number_is_never_recorded_twice() -> None:
    """A changed layout could once be recorded although no number was raised."""
    kept = json.loads(KEPT.read_text())
    made = recorded()
    assert not unraised(kept, made)
    made["socket"]["structs"]["careful_ipc"].pop()
    made["wire"]["constants"]["CAREFUL_HELLO"] += 1
    assert unraised(kept, made) == ["wire constants CAREFUL_HELLO", "socket structs careful_ipc"]
    made["wire"]["version"][0] += 1
    assert unraised(kept, made) == ["socket structs careful_ipc"]
    made = recorded()
    made["abi"]["version"][0] += 1
    assert unraised(kept, made) == ["socket: only the maps' number was raised"]
    made["socket"]["version"][0] += 1
    assert not unraised(kept, made)


def test_versions__a_minor_version_only_adds_at_the_end_of_a_struct() -> None:
    kept = json.loads(KEPT.read_text())
    name, minor = kept["wire"]["structs"]["careful_ctrl"][-2:]
    offset, size = name[1:]
    shorter = [["terms.name", offset, size - 1], ["x", offset + size - 1, 1], minor]
    for fields, allowed in (
        (shorter, True),
        ([["terms.name", offset, size - 1], minor], False),  # a byte that nobody names
        ([["x", offset, 1], ["terms.name", offset + 1, size - 1], minor], False),
        ([name, minor, ["x", minor[1] + 1, 1]], False),  # longer
    ):
        for raised in (1, 0):
            made = recorded()
            made["wire"]["version"][1] += raised
            made["wire"]["structs"]["careful_ctrl"][-2:] = fields
            found = unraised(kept, made)
            assert found == ([] if allowed and raised else ["wire structs careful_ctrl"])


if __name__ == "__main__":
    made = recorded()
    if differing := unraised(json.loads(KEPT.read_text()), made):
        sys.exit(f"raise the number first: changed: {', '.join(differing)}")
    KEPT.write_text(json.dumps(made, separators=(",", ":")).replace('],"', '],\n"') + "\n")
