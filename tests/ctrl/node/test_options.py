"""The keywords of careful.open() and careful.attach(): their names and types, for mypy, too."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

from careful._abi import ffi
from careful.control.options.up_options import OPTIONS, kind
from careful.node.options import NOT_OURS, AttachOptions, OpenOptions, attach_fields

#: Fields of struct careful_options that careful.open() sets itself, or leaves at 0.
UNNAMED = {"ifname", "instance", "measure_burst", "copyout_buffers", "unpacked"}

PROGRAM = """
import careful
careful.open("eth1", peers=2, wait="spin", xdp="native", keys="none", require_zerocopy=True)
careful.attach(name="worker", memory_bytes=1 << 20, wait="block")
careful.Node("eth1", queue=1)
careful.open("eth1", peer=2)
careful.open("eth1", peers="2")
careful.open("eth1", wait="fast")
careful.open("eth1", export=("/srv",))
careful.Node("eth1", queeu=1)
careful.attach(memory=1)
careful.attach(spin_us="50")
"""


def fields(struct: str) -> set[str]:
    return {name for name, _ in ffi.typeof(f"struct {struct}").fields or []}


def test_open__keywords_are_the_options_of_up() -> None:
    hints = get_type_hints(OpenOptions)
    assert hints.keys() == OPTIONS.keys() - set(NOT_OURS)
    for name, hint in hints.items():
        assert get_args(hint) == OPTIONS[name].choices
        assert OPTIONS[name].choices or hint is kind(name)
    named = {OPTIONS[name].field or name for name in hints}
    assert named == fields("careful_options") - UNNAMED


def test_attach__keywords_are_the_fields_of_its_struct() -> None:
    hints = get_type_hints(AttachOptions)
    assert get_args(hints.pop("wait")) == OPTIONS["wait"].choices
    assert hints.keys() | {"wait_mode", "path"} == fields("careful_attach_options")
    taken = inspect.signature(attach_fields).parameters.values()
    assert {one.name for one in taken if one.kind is one.KEYWORD_ONLY} == {*hints, "wait"}


def test_mypy__refuses_other_names_and_types(tmp_path: Path) -> None:
    words = ["--strict", "--cache-dir", str(tmp_path), "-c", PROGRAM]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words], capture_output=True, text=True, cwd=tmp_path
    )
    lines = [int(one.split(":")[1]) for one in done.stdout.splitlines() if ": error:" in one]
    assert lines == [*range(6, 13)], done.stdout
