"""The options of `up` against carefuld's own table: its help, and what it refuses."""

from __future__ import annotations

import errno
import re
import subprocess
from pathlib import Path

import pytest
from careful._abi import ffi, lib
from careful.control.options.up_options import OPTIONS, kind, word

DATAPATH = Path(__file__).resolve().parents[3] / "datapath"
#: What `up` decides itself.
OF_CAREFULD = {"ifname", "instance", "run-dir", "state-dir", "log", "ready-fd", "foreground"}


def carefuld(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["carefuld", *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def stated() -> dict[str, tuple[str, str]]:
    """Option -> the name of its value, "" for a flag, and its help."""
    found = re.findall(r"^  (--\S+) (\S*) +(.+(?:\n {25}.+)*)", carefuld("--help").stdout, re.M)
    return {name: (value, text) for name, value, text in found}


def test_names__each_is_in_both_tables(stated: dict[str, tuple[str, str]]) -> None:
    others = {f"--{name}" for name in OF_CAREFULD | {"help", "version"}}
    assert stated.keys() == {word(name) for name in OPTIONS} | others
    assert len(stated) == len(OPTIONS) + len(others)


@pytest.mark.parametrize("name", OPTIONS)
def test_values__both_tables_take_the_same(name: str, stated: dict[str, tuple[str, str]]) -> None:
    """carefuld names its range or choices when it refuses a value."""
    option, (value, text) = OPTIONS[name], stated[word(name)]
    assert (kind(name) is bool) == (value == "")
    done = carefuld(word(name), "-") if value else carefuld(f"{word(name)}=-")
    assert done.returncode == 2
    numbers = re.search(r"must be a number from (\d+) to (\d+)$", done.stderr.strip())
    assert (kind(name) is int) == bool(numbers)
    assert not numbers or [*map(int, numbers.groups())] == [option.least, option.most]
    choices = re.search(r"must be one of (.+)", done.stderr)
    assert option.choices == (tuple(choices[1].split(", ")) if choices else ())
    default = re.search(r"\((\w+)\)(?:$|\n)", text)
    has_default = kind(name) in (int, str) and option.default is not None
    assert (default[1] if default else None) == (str(option.default) if has_default else None)


@pytest.mark.parametrize("name", [name for name in OPTIONS if OPTIONS[name].power_of_two])
def test_buffers__are_those_of_the_library(name: str) -> None:
    """The interface's check, after carefuld's table, allows the same numbers."""
    option = OPTIONS[name]
    for number, allowed in (
        (option.least, True),
        (option.most, True),
        (option.most - 1, False),
        (2 * option.most, False),
    ):
        given = {"ifname": ffi.new("char[]", b"eth1"), name: number}
        rc = lib.careful_check(
            ffi.new("struct careful_options *", given), lib.CAREFUL_CHECK_OPTIONS, ffi.NULL
        )
        assert rc == (0 if allowed else -errno.EINVAL)


def test_refused__libcareful_names_options_as_up_does() -> None:
    """carefuld and carefulctl spell the field that an error of libcareful names."""
    source = "".join(one.read_text() for one in DATAPATH.rglob("*.c"))
    named = set(re.findall(r"\brefuse\([^,;]+,[^,;]+,\s*(\w+),", source))
    assert {"peers", "queues", "require_zerocopy", "seal"} <= named
    assert named <= {"instance", *OPTIONS}
