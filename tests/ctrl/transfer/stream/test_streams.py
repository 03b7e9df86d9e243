"""Standard input and output, null:, ranges, and files written in place."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
import xxhash
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.options import Options, Progress
from careful.transfer.run.session import connected
from careful.transfer.stream import ends
from careful.transfer.stream.local_end import Span
from careful.transfer.stream.ring import PeerFile, Stream, receive
from fake_daemon import FakeDaemon

BLOCK = 4096
DATA = os.urandom(BLOCK * 21 + 99)
OPTIONS = Options(block_bytes=BLOCK, blocks_in_flight=4)
FORCE = Options(block_bytes=BLOCK, blocks_in_flight=4, replace=True)


def get(route: Route, source: str, target: str, options: Options = OPTIONS, **span: Any) -> Any:
    return transfers.get(route, [source], target, False, options, Progress(), Span(**span))


def put(route: Route, source: str, target: str, options: Options = OPTIONS, **span: Any) -> Any:
    return transfers.put(route, [source], target, False, options, Progress(), Span(**span))


def test_get__to_standard_output(
    route: Route, export: Path, daemon: FakeDaemon, capfdbinary: Any, monkeypatch: Any
) -> None:
    (export / "f").write_bytes(DATA)
    with open("/dev/stdout", "wb") as out:  # noqa: PTH123
        monkeypatch.setattr("sys.stdout", out)
        report = get(route, "f", "-")
    assert capfdbinary.readouterr().out == DATA
    whole = transfers.get(route, ["f"], str(export.parent / "g"), False, OPTIONS, Progress())
    assert report.files[0].digest == whole.files[0].digest
    assert not daemon.handles


@pytest.mark.parametrize("size", [0, 1, BLOCK, len(DATA)])
def test_put__from_standard_input(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, monkeypatch: Any, size: int
) -> None:
    (tmp_path / "in").write_bytes(DATA[:size])
    with (tmp_path / "in").open("rb") as source:
        monkeypatch.setattr("sys.stdin", source)
        report = put(route, "-", "f")
    assert (export / "f").read_bytes() == DATA[:size]
    assert report.bytes == size
    assert [path.name for path in export.iterdir()] == ["f"]
    assert not daemon.handles
    with (tmp_path / "in").open("rb") as source:
        monkeypatch.setattr("sys.stdin", source)
        with pytest.raises(CarefulError, match="exists"):
            put(route, "-", "f")


def test_ends__a_directory_on_the_way_is_missing(
    route: Route, export: Path, tmp_path: Path
) -> None:
    """The error names the directory, as for any file, and --mkpath makes it."""
    (export / "f").write_bytes(DATA)
    (tmp_path / "f").write_bytes(DATA)
    with pytest.raises(CarefulError, match="no/dir: no such directory; --mkpath makes it"):
        get(route, "f", str(tmp_path / "no/dir/g"), offset=1)
    with pytest.raises(CarefulError, match="h2:no/dir: no such directory; --mkpath makes it"):
        put(route, str(tmp_path / "f"), "no/dir/g", offset=1)
    made = replace(OPTIONS, make_path=True)
    get(route, "f", str(tmp_path / "no/dir/g"), made, offset=1)
    put(route, str(tmp_path / "f"), "no/dir/g", made, offset=1)
    assert (tmp_path / "no/dir/g").read_bytes() == DATA[1:]
    assert (export / "no/dir/g").read_bytes() == DATA[1:]


def test_put__a_pipe_that_gives_little_at_a_time(
    route: Route, export: Path, monkeypatch: Any
) -> None:
    read, write = os.pipe()

    def give() -> None:
        for at in range(0, len(DATA), 777):
            os.write(write, DATA[at : at + 777])
        os.close(write)

    giver = threading.Thread(target=give)
    giver.start()
    with os.fdopen(read, "rb") as source:
        monkeypatch.setattr("sys.stdin", source)
        assert put(route, "-", "f").bytes == len(DATA)
    giver.join()
    assert (export / "f").read_bytes() == DATA


def test_null__either_end(route: Route, export: Path, tmp_path: Path, daemon: FakeDaemon) -> None:
    (export / "f").write_bytes(DATA)
    (tmp_path / "g").write_bytes(DATA)
    before = set(tmp_path.iterdir()) | set(export.iterdir())
    assert get(route, "f", "null:").bytes == len(DATA)
    assert put(route, str(tmp_path / "g"), "null:").bytes == len(DATA)
    assert get(route, "null:", "null:", nbytes=100_000).bytes == 100_000
    assert put(route, "null:", "null:", nbytes=100_000).bytes == 100_000
    assert set(tmp_path.iterdir()) | set(export.iterdir()) == before
    put(route, "null:", "zeros", nbytes=10_000)
    assert (export / "zeros").read_bytes() == bytes(10_000)
    get(route, "null:", str(tmp_path / "zeros"), nbytes=10_000)
    assert (tmp_path / "zeros").read_bytes() == bytes(10_000)
    with pytest.raises(CarefulError, match="--bytes"):
        get(route, "null:", "null:")
    for move, folder in ((get, "."), (put, str(export))):
        with pytest.raises(CarefulError, match=r"is a directory; -, null:.* a single file"):
            move(route, folder, "null:")
    assert not daemon.handles


def test_range__of_a_source(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "f").write_bytes(DATA)
    (tmp_path / "g").write_bytes(DATA)
    get(route, "f", str(tmp_path / "part"), offset=5000, nbytes=10_000)
    assert (tmp_path / "part").read_bytes() == DATA[5000:15_000]
    get(route, "f", str(tmp_path / "tail"), offset=80_000)
    assert (tmp_path / "tail").read_bytes() == DATA[80_000:]
    put(route, str(tmp_path / "g"), "part", offset=5000, nbytes=10_000)
    assert (export / "part").read_bytes() == DATA[5000:15_000]
    with pytest.raises(CarefulError, match="only 100 bytes follow"):
        get(route, "f", str(tmp_path / "more"), offset=len(DATA) - 100, nbytes=101)
    with pytest.raises(CarefulError, match="the source ended after 100 bytes"):
        put(route, str(tmp_path / "g"), "more", offset=len(DATA) - 100, nbytes=101)
    assert not (tmp_path / "more").exists()
    assert not (export / "more").exists()


def test_range__of_standard_input(
    route: Route, export: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "g").write_bytes(DATA)
    with (tmp_path / "g").open("rb") as source:
        monkeypatch.setattr("sys.stdin", source)
        put(route, "-", "part", offset=5000, nbytes=10_000)
    assert (export / "part").read_bytes() == DATA[5000:15_000]
    with (tmp_path / "g").open("rb") as source:
        monkeypatch.setattr("sys.stdin", source)
        assert put(route, "-", "none", offset=len(DATA) + 1).bytes == 0


@pytest.mark.parametrize("span", [{}, {"nbytes": 5}])
@pytest.mark.parametrize("way", ["get", "put"])
def test_special_file__is_never_replaced(
    route: Route, export: Path, tmp_path: Path, way: str, span: dict[str, int]
) -> None:
    source, target = (export, tmp_path) if way == "get" else (tmp_path, export)
    (source / "f").write_bytes(DATA)
    os.mkfifo(target / "fifo")
    ends = ("f", str(tmp_path / "fifo")) if way == "get" else (str(tmp_path / "f"), "fifo")
    reported = ""
    try:
        report = (get if way == "get" else put)(route, *ends, FORCE, **span)
        reported = report.failures[0][1]
    except CarefulError as error:
        reported = str(error)
    assert "fifo: is a special file and is never replaced" in reported
    assert (target / "fifo").is_fifo()


def test_get__interrupted_in_a_blocked_write(route: Route, export: Path, tmp_path: Path) -> None:
    """The writing thread continues with its own descriptors, even if their numbers are reused."""
    size = 3 << 20
    (export / "f").write_bytes(b"f" * size)
    (tmp_path / "other").write_bytes(b"o" * size)
    read, write = os.pipe()
    options = Options(block_bytes=size, blocks_in_flight=1)
    opened = []

    async def run() -> None:
        async with connected(route) as remote:
            handle, _ = await remote.open("f")
            span, names = (0, size), ("f", "-")
            stream = Stream(remote, names, options, Progress())
            job = receive(stream, PeerFile(handle), span, write)
            task = asyncio.create_task(job)
            while not select.select([read], [], [], 0)[0]:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            opened.extend(os.open(tmp_path / "other", os.O_RDONLY) for _ in range(20))

    asyncio.run(run())
    os.close(write)
    got = b""
    while piece := os.read(read, 1 << 20):
        got += piece
    for fd in (read, *opened):
        os.close(fd)
    assert set(got) == {ord("f")}
    assert len(got) == size


@pytest.mark.parametrize("way", ["get", "put"])
def test_in_place__a_range_is_overwritten(
    route: Route, export: Path, tmp_path: Path, way: str
) -> None:
    source, target = (export, tmp_path) if way == "get" else (tmp_path, export)
    (source / "part").write_bytes(b"new" * 5000)
    (target / "f").write_bytes(DATA)
    inode = (target / "f").stat().st_ino

    def move(options: Options) -> None:
        if way == "get":
            get(route, "part", str(target / "f"), options, at=6000)
        else:
            put(route, str(source / "part"), "f", options, at=6000)

    with pytest.raises(CarefulError, match="-f overwrites it"):
        move(OPTIONS)
    assert (target / "f").read_bytes() == DATA
    move(FORCE)
    assert (target / "f").read_bytes() == DATA[:6000] + b"new" * 5000 + DATA[21_000:]
    assert (target / "f").stat().st_ino == inode


@pytest.mark.parametrize("there", [5000, len(DATA), len(DATA) + 5000])
@pytest.mark.parametrize("way", ["get", "put"])
def test_in_place__only_differing_blocks(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, way: str, there: int
) -> None:
    """-c does not move an interrupted transfer's blocks again; a longer file stays longer."""
    source, target = (export, tmp_path) if way == "get" else (tmp_path, export)
    (source / "f").write_bytes(DATA)
    old = bytearray((DATA + DATA)[:there])
    old[4321] ^= 1
    (target / "t").write_bytes(b"before" + old)
    ends = ("f", str(tmp_path / "t")) if way == "get" else (str(tmp_path / "f"), "t")
    move = get if way == "get" else put
    options = replace(FORCE, checksum=True)
    result = move(route, *ends, options, at=6).files[0]
    assert (target / "t").read_bytes() == b"before" + DATA + bytes(old[len(DATA) :])
    differing = len(DATA) - BLOCK if there == 5000 else BLOCK
    assert result.bytes - result.matched_bytes == differing
    blocks = [xxhash.xxh3_64_digest(DATA[at : at + BLOCK]) for at in range(0, len(DATA), BLOCK)]
    assert result.digest == xxhash.xxh3_64_intdigest(b"".join(blocks))
    again = move(route, *ends, options, at=6)
    assert (again.files, [nbytes for _, nbytes in again.equal]) == ([], [len(DATA)])
    assert not daemon.handles


@pytest.mark.parametrize("way", ["get", "put"])
def test_in_place__dry_run(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, way: str
) -> None:
    source, target = (export, tmp_path) if way == "get" else (tmp_path, export)
    (source / "f").write_bytes(DATA)
    (target / "t").write_bytes(b"kept")
    ends = ("f", str(tmp_path / "t")) if way == "get" else (str(tmp_path / "f"), "t")
    report = (get if way == "get" else put)(route, *ends, replace(FORCE, dry_run=True), at=0)
    assert (report.bytes, report.files[0].digest) == (len(DATA), None)
    assert (target / "t").read_bytes() == b"kept"
    assert not daemon.handles


def test_refused__options_that_the_ends_cannot_have(
    route: Route, export: Path, tmp_path: Path
) -> None:
    (export / "f").write_bytes(DATA)
    here = str(tmp_path / "g")
    with pytest.raises(CarefulError, match="-u: works only on whole files"):
        get(route, "f", here, replace(OPTIONS, update=True), offset=0, nbytes=5)
    with pytest.raises(CarefulError, match="-c: needs a target that is written in place"):
        get(route, "f", here, replace(OPTIONS, checksum=True), nbytes=5)
    with pytest.raises(CarefulError, match="--digest blake3: needs a whole"):
        get(route, "f", here, replace(OPTIONS, blake3=True), offset=BLOCK)
    assert not (tmp_path / "g").exists()


def test_standard_input_and_output__closed(
    route: Route, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (export / "f").write_bytes(DATA)
    monkeypatch.setattr("sys.stdin", None)  # as Python has it
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(CarefulError, match="-: is closed"):
        get(route, "f", "-")
    with pytest.raises(CarefulError, match="-: is closed"):
        put(route, "-", "g")
    assert not (export / "g").exists()


def test_put__a_fifo_without_a_writer(route: Route, tmp_path: Path) -> None:
    """Ctrl-C ends the put while it waits for the writer."""
    os.mkfifo(tmp_path / "fifo")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            put(route, str(tmp_path / "fifo"), "g", nbytes=5)
    finally:
        os.close(os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK))  # ends the waiting thread
        timer.join()


def test_get__damage_is_asked_for_again(route: Route, daemon: FakeDaemon, export: Path) -> None:
    (export / "f").write_bytes(DATA)
    count = 0

    def fault(question: Any) -> int:
        nonlocal count
        count += question.op == lib.CAREFUL_IPC_GET
        return -errno.EBADMSG if question.op == lib.CAREFUL_IPC_GET and count % 3 == 0 else 0

    daemon.fault = fault
    report = get(route, "f", str(export.parent / "out"), offset=0, nbytes=len(DATA))
    assert (export.parent / "out").read_bytes() == DATA
    assert report.retries > 0


@pytest.mark.parametrize("size", [0, 100, BLOCK, BLOCK + 1, len(DATA)])
@pytest.mark.parametrize("way", ["get", "put"])
def test_blake3__of_both_ends(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, way: str, size: int
) -> None:
    """The digest does not depend on the block size; a damaged block is moved again."""
    (export / "f").write_bytes(DATA[:size])
    (tmp_path / "f").write_bytes(DATA[:size])
    found = set()
    for block in (BLOCK, 4 * BLOCK, 1 << 20):
        options = Options(block_bytes=block, blake3=True, replace=True)
        target = str(tmp_path / "g")
        if way == "get":
            done = transfers.get(route, ["f"], target, False, options, Progress())
        else:
            done = transfers.put(route, [str(tmp_path / "f")], "g", False, options, Progress())
        assert done.files[0].is_blake3
        found.add(done.files[0].digest)
    assert len(found) == 1
    assert found.pop() not in (None, 0)


def test_blake3__known_value(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "f").write_bytes(b"abc")
    options = Options(blake3=True)
    done = transfers.get(route, ["f"], str(tmp_path / "g"), False, options, Progress())
    known = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
    assert f"{done.files[0].digest:064x}" == known


def test_blake3__a_block_that_differs_is_moved_again(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "f").write_bytes(DATA)
    damaged = False

    def fault(question: Any) -> int:
        nonlocal damaged
        asks = question.op == lib.CAREFUL_IPC_REQUEST
        if asks and question.handler == lib.CAREFUL_BLOCK_DIGEST and not damaged:
            damaged = True
            part = next(path for path in tmp_path.iterdir() if ".careful-" in path.name)
            with part.open("r+b") as file:
                file.seek(3 * BLOCK)
                file.write(b"damage")
        return 0

    daemon.fault = fault
    options = Options(block_bytes=BLOCK, blake3=True)
    done = transfers.get(route, ["f"], str(tmp_path / "g"), False, options, Progress())
    assert damaged
    assert (tmp_path / "g").read_bytes() == DATA
    assert done.retries == 1


@pytest.mark.parametrize("size", [0, 100, BLOCK, BLOCK + 1, len(DATA)])
@pytest.mark.parametrize("way", ["get", "put"])
def test_blake3__of_a_stream(
    route: Route,
    daemon: FakeDaemon,
    export: Path,
    tmp_path: Path,
    monkeypatch: Any,
    way: str,
    size: int,
) -> None:
    """A stream has the digest of a file, of known length or not; a bad block moves again."""
    (export / "f").write_bytes(DATA[:size])
    options = replace(OPTIONS, blake3=True)
    whole = transfers.get(route, ["f"], str(tmp_path / "g"), False, options, Progress()).files[0]
    wrong = 1

    def fault(question: Any) -> int:
        nonlocal wrong
        asks = question.op == lib.CAREFUL_IPC_REQUEST
        if asks and question.handler == lib.CAREFUL_BLOCK_DIGEST and wrong and size > BLOCK:
            wrong -= 1
            for part in export.glob(".careful-*.part"):
                with part.open("r+b") as file:
                    file.write(b"damage")
        return 0

    daemon.fault = fault
    if way == "get":
        with (tmp_path / "out").open("wb") as out:
            monkeypatch.setattr("sys.stdout", out)
            stream = get(route, "f", "-", options).files[0]
        assert (tmp_path / "out").read_bytes() == DATA[:size]
    else:
        with (tmp_path / "g").open("rb") as source:
            monkeypatch.setattr("sys.stdin", source)
            stream = put(route, "-", "sent", options).files[0]
        assert (export / "sent").read_bytes() == DATA[:size]
        assert stream.retries == (size > BLOCK)
    assert (stream.digest, stream.is_blake3) == (whole.digest, True)


def test_put__a_full_device_reads_one_more_byte_of_standard_input() -> None:
    """The end of a pipe may be far, and Ctrl-C must not wait for it."""
    read, write = os.pipe()
    timer = threading.Timer(1.0, os.close, [write])
    timer.start()

    async def run() -> bool:
        check = ends._check_all_fitted(read, 10, 10, Span(), "device")
        task = asyncio.create_task(check)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waits = timer.is_alive() and not task.done()
        await task
        return waits

    assert asyncio.run(run())
    timer.join()
    os.close(read)
