"""Tests, without a machine, the log of a disk's writes, and the disk after a power cut."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from emulated.writes import DISCARD, ENTRY, FLUSH, FUA, MAGIC, MARK, SUPER, Disk, Log

SECTOR = 512
SECTORS = 16

Entry = tuple[int, int, bytes]  # sector, flags, data


@pytest.fixture
def logged(tmp_path: Path) -> Callable[..., Log]:
    """Writes a log of these entries, without its last `cut_bytes`."""

    def write(*entries: Entry, cut_bytes: int = 0) -> Log:
        raw = SUPER.pack(MAGIC, 1, len(entries), SECTOR).ljust(SECTOR, b"\0")
        for sector, flags, data in entries:
            count = len(data) // SECTOR
            raw += ENTRY.pack(sector, count, flags, 0).ljust(SECTOR, b"\0")
            raw += b"" if flags & (DISCARD | MARK) else data
        path = tmp_path / "log"
        path.write_bytes(raw[: len(raw) - cut_bytes])
        return Log(path)

    return write


@pytest.fixture
def cut(tmp_path: Path) -> Callable[..., str]:
    """Returns the sectors of a disk of 'e's whose power fails after this many entries."""

    def fail(log: Log, instant: int, fate: str, rng: random.Random | None = None) -> str:
        empty = tmp_path / "empty"
        empty.write_bytes(b"e" * SECTORS * SECTOR)
        disk = Disk(log, empty, tmp_path / "certain")
        disk.cut(instant, fate, rng or random.Random(1), tmp_path / "image")
        data = (tmp_path / "image").read_bytes()
        sectors = [data[k * SECTOR : (k + 1) * SECTOR] for k in range(SECTORS)]
        assert all(len(set(one)) == 1 for one in sectors), "a sector is whole"
        return "".join(chr(one[0] or ord("0")) for one in sectors)

    return fail


def of(letters: str) -> bytes:
    return b"".join(one.encode() * SECTOR for one in letters)


def test_log__of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for raw in (b"", b"x" * SECTOR, SUPER.pack(MAGIC, 2, 0, SECTOR)):
        path.write_bytes(raw)
        with pytest.raises(ValueError, match="no log"):
            Log(path)


def test_log__entries_and_data(logged: Callable[..., Log]) -> None:
    log = logged((3, 0, of("ab")), (0, FLUSH, b""), (5, DISCARD, of("xx")), (7, FUA, of("c")))
    assert [(one.sector, one.sectors, one.flags) for one in log.writes] == [
        (3, 2, 0), (0, 0, FLUSH), (5, 2, DISCARD), (7, 1, FUA),
    ]  # fmt: skip
    assert [log.data(one) for one in log.writes] == [of("ab"), b"", bytes(2 * SECTOR), of("c")]


def test_log__mark_has_no_data_of_the_disk(logged: Callable[..., Log]) -> None:
    log = logged((0, MARK, of("m")), (1, 0, of("a")))
    assert [(one.sectors, log.data(one)) for one in log.writes] == [(0, b""), (1, of("a"))]


def test_log__ends_in_the_middle_of_an_entry(logged: Callable[..., Log]) -> None:
    for cut_bytes in (1, SECTOR, 2 * SECTOR - 1, 2 * SECTOR):
        assert len(logged((0, 0, of("a")), (1, 0, of("b")), cut_bytes=cut_bytes).writes) == 1


def test_cut__flushed_is_there(logged: Callable[..., Log], cut: Callable[..., str]) -> None:
    log = logged((0, 0, of("ab")), (1, 0, of("c")), (0, FLUSH, b""), (2, 0, of("d")))
    assert cut(log, 2, "dropped") == "e" * 16
    assert cut(log, 3, "dropped") == "ac" + "e" * 14
    assert cut(log, 4, "dropped") == "ac" + "e" * 14
    assert cut(log, 4, "kept") == "acd" + "e" * 13


def test_cut__fua_and_discard(logged: Callable[..., Log], cut: Callable[..., str]) -> None:
    log = logged((0, 0, of("a")), (1, FUA, of("b")), (3, DISCARD, of("xx")))
    assert cut(log, 3, "dropped") == "eb" + "e" * 14
    assert cut(log, 3, "kept") == "abe00" + "e" * 11


def test_cut__some_and_torn(logged: Callable[..., Log], cut: Callable[..., str]) -> None:
    """Every subset of the writes occurs, even later writes without earlier ones."""
    log = logged((0, 0, of("aa")), (1, 0, of("b")))
    some = {cut(log, 2, "some", random.Random(k))[:3] for k in range(24)}
    assert some == {"eee", "aae", "ebe", "abe"}
    torn = {cut(log, 2, "torn", random.Random(k))[:3] for k in range(60)}
    assert torn == {"eee", "aae", "ebe", "abe", "aee", "eae"}


def test_cut__later_and_later(logged: Callable[..., Log], tmp_path: Path) -> None:
    """A disk cut at one instant after another has the same contents as a new disk for each."""
    rng = random.Random(7)
    entries = [
        (0, FLUSH, b"") if rng.random() < 0.3 else (rng.randrange(15), 0, of(rng.choice("abcdef")))
        for _ in range(40)
    ]
    log = logged(*entries)
    (tmp_path / "empty").write_bytes(bytes(SECTORS * SECTOR))
    disk = Disk(log, tmp_path / "empty", tmp_path / "all")
    for instant in range(41):
        disk.cut(instant, "dropped", rng, tmp_path / "one")
        fresh = Disk(log, tmp_path / "empty", tmp_path / "fresh")
        fresh.cut(instant, "dropped", rng, tmp_path / "two")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_entry__has_the_kernels_layout() -> None:
    """Checks the sizes of struct log_write_super and log_write_entry, packed and little-endian."""
    assert (SUPER.size, ENTRY.size) == (28, 32)
    assert SUPER.pack(MAGIC, 1, 2, 512)[:8] == struct.pack("<Q", 0x6A736677736872)


def test_disk__that_ignores_flushes(logged: Callable[..., Log], tmp_path: Path) -> None:
    """The disk ignores half of the flushes, and loses the writes that they should keep."""
    each = [(k % SECTORS, FLUSH, of("a")) for k in range(200)]
    log = logged(*each)
    (tmp_path / "empty").write_bytes(of("e") * SECTORS)

    def unsure(lies: random.Random | None) -> int:
        disk = Disk(log, tmp_path / "empty", tmp_path / "certain", lies)
        cuts = range(1, len(each) + 1)
        return sum(disk.cut(k, "dropped", random.Random(1), tmp_path / "image") for k in cuts)

    assert unsure(None) == 0
    assert 60 <= unsure(random.Random(1)) <= 400
