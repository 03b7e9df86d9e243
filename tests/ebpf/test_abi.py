"""wire.h and abi.h mean the same to the BPF object and to the Python binding."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from typing import Any

import pytest
from careful._binding import ffi, lib

#: Structures that XDP reads or writes. clang leaves a structure out of the BTF if only local
#: pointers point to it; a global `const struct careful_hdr *` in the program prevents this.
SHARED = [
    "careful_hdr",
    "careful_peer_entry",
    "careful_tune_entry",
    "careful_tune",
    "careful_class",
    "careful_plan",
    "careful_live_entry",
    "careful_live_cell",
    "careful_live_stored",
    "careful_live_write",
    "careful_xdp_config",
    "careful_xdp_start",
    "careful_queue_entry",
    "careful_arrivals",
    "careful_arrival",
]


@pytest.fixture(scope="module")
def btf() -> dict[int, dict[str, Any]]:
    """The types of the installed BPF object, by id."""
    if shutil.which("bpftool") is None:
        pytest.skip("bpftool is missing")
    objekt = resources.files("careful") / "bpf" / "careful.bpf.o"
    dump = ["bpftool", "-j", "btf", "dump", "file", str(objekt)]
    done = subprocess.run(dump, capture_output=True, text=True, check=True)
    return {one["id"]: one for one in json.loads(done.stdout)["types"]}


@pytest.mark.parametrize("name", SHARED)
def test_struct__same_size_and_offsets(btf: dict[int, dict[str, Any]], name: str) -> None:
    found = [one for one in btf.values() if one["kind"] == "STRUCT" and one["name"] == name]
    assert len(found) == 1
    struct = ffi.typeof(f"struct {name}")
    assert found[0]["size"] == ffi.sizeof(struct)
    assert {member["name"]: member["bits_offset"] for member in found[0]["members"]} == {
        field: 8 * details.offset for field, details in struct.fields
    }


def test_struct__members_have_the_same_size(btf: dict[int, dict[str, Any]]) -> None:
    def size_of(identifier: int) -> int:
        one = btf[identifier]
        if one["kind"] == "ARRAY":
            return int(one["nr_elems"]) * size_of(one["type_id"])
        return int(one["size"]) if "size" in one else size_of(one["type_id"])

    for one in btf.values():
        if one["kind"] == "STRUCT" and one["name"] in SHARED:
            fields = dict(ffi.typeof(f"struct {one['name']}").fields)
            for member in one["members"]:
                mine = ffi.sizeof(fields[member["name"]].type)
                assert size_of(member["type_id"]) == mine, (one["name"], member["name"])


def test_enum__same_values(btf: dict[int, dict[str, Any]]) -> None:
    values = {
        value["name"]: value["val"]
        for one in btf.values()
        if one["kind"] == "ENUM"
        for value in one["values"]
        if value["name"].startswith("CAREFUL_")
    }
    assert "CAREFUL_XDP_ADMITTED" in values
    assert values == {name: getattr(lib, name) for name in values}
