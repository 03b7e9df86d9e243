"""`carefulctl ls`: order, JSON, and memory use for large directories."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from careful import jsonout
from careful._abi import pack
from careful.errors import CarefulError
from careful.render.files import listing
from careful.transfer.protocol.entries import Attr, Entry
from careful.transfer.protocol.spool import Spool
from fake_daemon import Answer, FakeDaemon, Handle

ATTR = Attr(0o100644, 1, 0, 0, 5, 0, 0, 1, 1, 0)

#: Lists the daemon's directory like the command, and prints the memory used.
_LS = """
import sys
from pathlib import Path
from careful.address import resolve
from careful.cli.main import run
from careful.control.instance import remote
from careful.daemon.route import Route

class Effect:
    def as_dict(self):
        return {}

route = Route(Path(sys.argv[1]), "test", resolve("10.0.0.2"), "h2")
remote.find = lambda *_: (route, Effect())
status = run(["ls", *sys.argv[2:], "h2:"])
# ru_maxrss would count whoever started us, too.
words = Path("/proc/self/status").read_text().split()
print(words[words.index("VmHWM:") + 1], file=sys.stderr)
sys.exit(status)
"""


def record(name: str, target: str = "", error: int = 0) -> bytes:
    raw = name.encode(), target.encode()
    mode = {"attr.mode": 0 if error else 0o100644}
    sizes = {"name_bytes": len(raw[0]), "target_bytes": len(raw[1])}
    data = pack("careful_block_entry", **mode, **sizes, error=error) + b"".join(raw)
    return data + bytes(-len(data) % 8)


def ls(daemon: FakeDaemon, *options: str) -> tuple[str, int]:
    """Returns the output, and the largest memory of the process in KiB."""
    argv = [sys.executable, "-c", _LS, str(daemon.path), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout, int(done.stderr)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_ls__memory_does_not_grow_with_the_directory(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Memory once grew by 830 bytes an entry, with --json by 2,300."""
    count = 50_000
    _, small = ls(daemon, *options)
    records = b"".join(record(f"a name that is not short at all {at:06}") for at in range(count))

    def listed(*_: Any) -> Answer:
        fd = os.memfd_create("listing")
        os.write(fd, records)
        return Answer(args=[daemon._add(Handle(fd)), 0, len(records), 0])

    monkeypatch.setattr(daemon, "_list", listed)
    text, large = ls(daemon, *options)
    if options:
        assert len(json.loads(text)["entries"]) == count
    else:
        assert [int(line[-6:]) for line in text.splitlines()] == list(range(count))
    assert large - small < 18 << 10


def test_ls__nothing(daemon: FakeDaemon) -> None:
    assert ls(daemon)[0] == ""
    assert json.loads(ls(daemon, "--json")[0])["entries"] == []


def pages(entries: list[Entry], size: int) -> Iterator[list[Entry]]:
    return (entries[at : at + size] for at in range(0, len(entries), size))


def test_in_order__sorts_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_PART", 50)
    monkeypatch.setattr(listing, "_CHUNK", 7)
    names = [f"{index:03}\udcff" for index in range(333)]
    entries = [Entry(name, ATTR, "t", 0) for name in names]
    mixed = random.Random(2).sample(entries, len(entries))
    assert list(listing.in_order(pages(mixed, 30))) == entries
    assert list(listing.in_order(pages(mixed[:40], 30))) == sorted(mixed[:40])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_pieces__are_the_document(count: int) -> None:
    inputs: dict[str, Any] = {"target": "h2:"}
    figures = {"instance": "a", "routes": [1, 2]}
    items = [{"name": "\u00fc", "bytes": index, "empty": []} for index in range(count)]
    whole = jsonout.document("ls", inputs, {**figures, "entries": items})
    assert "".join(jsonout.pieces("ls", inputs, figures, "entries", items)) == whole


def spool(data: bytes, unreadable: int = 0) -> Spool:
    made = Spool(len(data), unreadable)
    with open(made.fd, "wb", closefd=False) as file:
        file.write(data)
    return made


def test_spool__pages_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a" * (1 + index % 40) for index in range(100)]
    data = b"".join(record(name, "to" if len(name) == 3 else "") for name in names)
    for size in (8, 80, 1000, 1 << 20):
        monkeypatch.setattr("careful.transfer.protocol.spool._PAGE_BYTES", size)
        with spool(data) as made:
            found = [entry for page in made.pages() for entry in page]
        assert [one.name for one in found] == names
        assert found[2].target == "to"


def test_spool__unreadable_listings() -> None:
    with spool(record("a") + record("b", error=errno.EIO), unreadable=3) as made:
        found = [entry for page in made.pages() for entry in page]
    assert [one.error for one in found] == [0, errno.EIO, errno.ENAMETOOLONG]
    assert found[2].name.startswith("(2 with paths")
    assert list(listing.lines([found], False))[1:] == ["a", "b (Input/output error)"]


@pytest.mark.parametrize("data", [record("a")[:-8], record("a") + b"1234567", record("../a")])
def test_spool__refuses_other_data_than_a_listing(data: bytes) -> None:
    with spool(data) as made, pytest.raises(CarefulError):
        list(made.pages())


def test_spool__large_listings_need_no_memory() -> None:
    """Large listings are in a file on disk, not in a memfd."""
    with Spool(1 << 30) as large, Spool(1 << 10) as small:
        kinds = [Path(f"/proc/self/fd/{one.fd}").readlink() for one in (large, small)]
    assert ["memfd:" in str(kind) for kind in kinds] == [False, True]
