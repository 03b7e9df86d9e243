"""A stand-in for carefuld and a peer: ipc.h's socket over a directory of this machine.

Implements the block service of block.h in one thread, with faults on request. It is independent of
carefuld: if the two differ, one of them is wrong.
"""

from __future__ import annotations

import array
import errno
import os
import secrets
import select
import socket
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash
from careful._abi import ffi, lib, pack, sizeof, unpack

HEADER = sizeof("careful_ipc")
Fault = Callable[[Any], int]
#: Requests that move a block.
MOVES = (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE)


class DiedError(Exception):
    """Raised by a fault: the daemon dies, like by SIGKILL."""


def attr_bytes(found: os.stat_result) -> bytes:
    return pack(
        "careful_block_attr",
        mode=found.st_mode,
        nlink=found.st_nlink,
        uid=found.st_uid,
        gid=found.st_gid,
        bytes=found.st_size,
        mtime_ns=max(-(1 << 63), min(found.st_mtime_ns, (1 << 63) - 1)) % (1 << 64),
        ctime_ns=found.st_ctime_ns,
        inode=found.st_ino,
        device=found.st_dev,
        allocated=found.st_blocks * 512,
    )


@dataclass
class Handle:
    fd: int
    path: Path | None = None  # of a file being created: its final name
    temporary: Path | None = None
    nbytes: int = 0  # size after COMMIT; 0: COMMIT sets it
    keep: bool = False  # a partial file
    base: int = -1  # directory of a batch's memory
    client: object = None  # the client that opened it


@dataclass
class Answer:
    status: int = 0
    args: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    payload: bytes = b""
    values: dict[str, int] = field(default_factory=dict)


class FakeDaemon:
    """Serves one directory on a socket until stop().

    fault(question) may return a negative errno as the answer, or 0; it may have side effects.
    """

    def __init__(self, folder: Path, root: Path, writable: bool = True, serve: bool = True) -> None:
        self.path = folder / "sock"
        self.root = root
        self.writable = writable
        self.fault: Fault = lambda question: 0
        self.handles: dict[int, Handle] = {}
        self.attempts: dict[tuple[int, int], Answer] = {}
        self.ended: dict[int, Answer] = {}
        self.copies = True  # False: like a server without COPY
        self.asked: list[int] = []
        self.in_flight_max = 0
        self.files_now = 0  # registered by the last client
        self.unlisted = 0  # number of names in each listing that are too long
        self.request_max = 1 << 16  # bytes of a request's payload
        self.answers_lost = 0  # number of the next answers that become ECONNRESET
        self.info = ffi.new("struct careful_info *")
        self.peers: list[Any] = []
        self.connected: list[bytes] = []
        self.connect_status = 0
        self._next = 1
        self._client: object = None  # the client that asks
        if not serve:  # the owner calls the methods itself
            return
        self._stop_read, self._stop_write = os.pipe()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a second call does nothing."""
        if not self._thread.is_alive():
            return
        os.write(self._stop_write, b"x")
        self._thread.join()
        self._listener.close()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def moves(self, sizes: tuple[int, ...], deadly: int = 1 << 30) -> list[int]:
        """Counts moved blocks of these sizes; the daemon dies at one of them."""
        moved: list[int] = []

        def fault(question: Any) -> int:
            if question.op in MOVES and question.bytes in sizes:
                moved.append(question.bytes)
                if len(moved) == deadly:
                    raise DiedError
            return 0

        self.fault = fault
        return moved

    # --- the socket

    def _serve(self) -> None:
        clients: dict[socket.socket, dict[int, int]] = {}
        while True:
            ready, _, _ = select.select([self._listener, self._stop_read, *clients], [], [])
            if self._stop_read in ready:
                break
            for one in ready:
                if one is self._listener:
                    connection, _ = self._listener.accept()
                    clients[connection] = {}
                elif not self._packets_or_death(one, clients[one]):
                    for fd in clients.pop(one).values():
                        os.close(fd)
                    one.close()
                    for number, handle in list(self.handles.items()):
                        if handle.client is one:  # like carefuld for its client
                            self._close(number, False)
        for one in clients:
            one.close()

    def _packets_or_death(self, client: socket.socket, files: dict[int, int]) -> bool:
        try:
            return self._packets(client, files)
        except DiedError:
            return False

    def _packets(self, client: socket.socket, files: dict[int, int]) -> bool:
        waiting: list[tuple[bytes, list[int]]] = []
        self._client = client
        while True:
            try:
                data, control, _, _ = client.recvmsg(1 << 17, 1024, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                return False
            if not data:
                return False
            fds = array.array("i")
            for _, _, raw in control:
                fds.frombytes(raw)
            waiting.append((data, list(fds)))
        self.in_flight_max = max(self.in_flight_max, len(waiting))
        answers = []
        for data, passed in waiting:
            question = ffi.new("struct careful_ipc *")
            ffi.memmove(question, data, HEADER)
            self.asked.append(question.op)
            answer = self._answer(question, data[HEADER:], passed, files)
            if self.answers_lost:
                self.answers_lost -= 1
                answer = Answer(-errno.ECONNRESET)
            for name, value in answer.values.items():
                setattr(question, name, value)
            question.status = answer.status
            question.args = answer.args
            question.payload_bytes = len(answer.payload)
            answers.append(bytes(ffi.buffer(question)) + answer.payload)
        client.setblocking(True)
        for packet in reversed(answers):  # packets arrive in any order
            try:
                client.sendall(packet)
            except OSError:
                return False
        return True

    def _answer(self, q: Any, payload: bytes, fds: list[int], files: dict[int, int]) -> Answer:
        assert q.version == lib.CAREFUL_IPC_VERSION
        assert q.payload_bytes == len(payload)
        if status := self.fault(q):
            for fd in fds:
                os.close(fd)
            return Answer(status)
        try:
            if q.op == lib.CAREFUL_IPC_INFO:
                return Answer(payload=bytes(ffi.buffer(self.info)))
            if q.op == lib.CAREFUL_IPC_PEERS:
                return Answer(payload=b"".join(bytes(ffi.buffer(peer)) for peer in self.peers))
            if q.op == lib.CAREFUL_IPC_CONNECT:
                self.connected.append(payload)
                return Answer(self.connect_status, values={"peer": 3})
            if q.op == lib.CAREFUL_IPC_FILE_ADD:
                if len(files) == lib.CAREFUL_IPC_FILES:
                    os.close(fds[0])
                    return Answer(-errno.EMFILE)
                self._next += 1
                files[self._next] = fds[0]
                self.files_now = len(files)
                return Answer(values={"file": self._next})
            if q.op == lib.CAREFUL_IPC_FILE_REMOVE:
                os.close(files.pop(q.file))
                self.files_now = len(files)
                return Answer()
            assert q.peer == 3
            if q.op == lib.CAREFUL_IPC_REQUEST:
                if len(payload) > self.request_max:
                    return Answer(-errno.EMSGSIZE)
                return self._request(q.handler, list(q.args), payload)
            if q.op == lib.CAREFUL_IPC_GETS:
                return self._gets(q, files, payload)
            return self._move(q, files)
        except OSError as error:
            return Answer(-(error.errno or errno.EIO))

    def _gets(self, q: Any, files: dict[int, int], payload: bytes) -> Answer:
        if q.region not in self.handles:
            return Answer(-errno.ENOENT)
        size = sizeof("careful_ipc_range")
        for at in range(0, len(payload), size):
            one = ffi.from_buffer("struct careful_ipc_range *", payload[at : at + size])
            data = os.pread(self.handles[q.region].fd, one.bytes, one.region_off)
            if len(data) != one.bytes:
                return Answer(-errno.ENODATA)
            os.pwrite(files[q.file], data, one.file_off)
        return Answer()

    def _move(self, q: Any, files: dict[int, int]) -> Answer:
        if q.region not in self.handles:
            return Answer(-errno.ENOENT)
        ours, theirs = files[q.file], self.handles[q.region].fd
        if max(q.region_off, q.file_off) > (1 << 63) - 1 - q.bytes:
            return Answer(-errno.EINVAL)
        if q.op == lib.CAREFUL_IPC_GET:
            data = os.pread(theirs, q.bytes, q.region_off)
            os.pwrite(ours, data, q.file_off)
        else:
            data = os.pread(ours, q.bytes, q.file_off)
            os.pwrite(theirs, data, q.region_off)
        digest = 0 if q.flags & lib.CAREFUL_NO_DIGEST else xxhash.xxh3_64_intdigest(data)
        placed = len(data) if q.op == lib.CAREFUL_IPC_GET else 0
        return Answer(values={"bytes": placed, "digest": digest})

    # --- the block service

    def _path(self, raw: bytes) -> Path:
        path = self.root / os.fsdecode(raw)
        resolved = Path(os.path.realpath(path.parent)) / path.name
        if raw.startswith(b"/") or not (resolved == self.root or self.root in resolved.parents):
            raise OSError(errno.EACCES, "escapes")
        return path

    def _add(self, handle: Handle) -> int:
        self._next += 1
        handle.client = self._client
        self.handles[self._next] = handle
        return self._next

    def _request(self, handler: int, args: list[int], payload: bytes) -> Answer:
        if handler in (
            lib.CAREFUL_BLOCK_OPEN,
            lib.CAREFUL_BLOCK_LIST,
            lib.CAREFUL_BLOCK_BATCH,
        ):
            assert args[2] or args[3]
            name = (args[2], args[3])
            if name not in self.attempts:
                self.attempts[name] = self._run(handler, args, payload)
            return self.attempts[name]
        if handler in (lib.CAREFUL_BLOCK_COMMIT, lib.CAREFUL_BLOCK_CLOSE):
            if args[0] not in self.ended:
                self.ended[args[0]] = self._run(handler, args, payload)
            return self.ended[args[0]]
        return self._run(handler, args, payload)

    def _stored(self, args: list[int], payload: bytes) -> bytes:
        """Returns a request's payload with its stored path."""
        memory = self.handles[args[1]]
        assert memory.base < 0
        path = os.pread(memory.fd, 4096, 0)
        if not payload:
            return path
        fields = unpack("careful_block_open", payload)
        assert not fields["path_bytes"]
        return pack("careful_block_open", **fields | {"path_bytes": len(path)}) + path

    def _run(self, handler: int, args: list[int], payload: bytes) -> Answer:
        if args[1] and handler in (
            lib.CAREFUL_BLOCK_OPEN,
            lib.CAREFUL_BLOCK_LIST,
            lib.CAREFUL_BLOCK_STAT,
            lib.CAREFUL_BLOCK_MKDIR,
        ):
            payload = self._stored(args, payload)
        if handler == lib.CAREFUL_BLOCK_STAT:
            return Answer(payload=attr_bytes(self._path(payload).stat()))
        if handler == lib.CAREFUL_BLOCK_LIST:
            return self._list(self._path(payload), bool(args[0] & lib.CAREFUL_BLOCK_RECURSIVE))
        if handler == lib.CAREFUL_BLOCK_CLOSE:
            return self._close(args[0], bool(args[1] & lib.CAREFUL_BLOCK_DISCARD))
        if handler == lib.CAREFUL_BLOCK_EXTENTS:
            return self._extents(self.handles[args[0]].fd, unpack("careful_block_range", payload))
        if handler == lib.CAREFUL_BLOCK_DIGEST and args[0] not in self.handles:
            return Answer(-errno.EBADF)
        if handler == lib.CAREFUL_BLOCK_DIGEST:
            return self._digest(self.handles[args[0]].fd, unpack("careful_block_range", payload))
        if handler == lib.CAREFUL_BLOCK_BATCH:
            return self._batch(args, unpack("careful_block_batch", payload))
        fields = unpack("careful_block_open", payload)
        raw = payload[sizeof("careful_block_open") :]
        assert len(raw) == fields["path_bytes"]
        if handler == lib.CAREFUL_BLOCK_COMMIT:
            return self._commit(args, fields)
        path = self._path(raw)
        if handler == lib.CAREFUL_BLOCK_MKDIR:
            self._check_writable()
            path.mkdir(mode=fields["mode"], exist_ok=True)
            return Answer()
        assert handler == lib.CAREFUL_BLOCK_OPEN
        if fields["flags"] & lib.CAREFUL_BLOCK_NULL and fields["flags"] & lib.CAREFUL_BLOCK_SCRATCH:
            fd = os.memfd_create("path")
            os.ftruncate(fd, fields["bytes"])
            return Answer(args=[self._add(Handle(fd)), 0, 0, 0])
        if fields["flags"] & lib.CAREFUL_BLOCK_NULL:
            return Answer(args=[self._add(Handle(os.open("/dev/zero", os.O_RDWR))), 0, 0, 0])
        if fields["flags"] & lib.CAREFUL_BLOCK_INPLACE:
            self._check_writable()
            fd = os.open(path, os.O_RDWR)
            return Answer(args=[self._add(Handle(fd)), 0, 0, 0], payload=attr_bytes(os.fstat(fd)))
        if fields["flags"] & lib.CAREFUL_BLOCK_SCRATCH:
            base = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fd = os.memfd_create("scratch")
            os.ftruncate(fd, fields["bytes"])
            return Answer(args=[self._add(Handle(fd, base=base)), 0, 0, 0])
        if fields["flags"] & lib.CAREFUL_BLOCK_CREATE:
            return self._create(path, fields, args[0])
        if path.is_dir():
            raise OSError(errno.EISDIR, "directory")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        return Answer(args=[self._add(Handle(fd)), 0, 0, 0], payload=attr_bytes(os.fstat(fd)))

    def _check_writable(self) -> None:
        if not self.writable:
            raise OSError(errno.EROFS, "read-only")

    def _create(self, path: Path, fields: dict[str, Any], source: int) -> Answer:
        self._check_writable()
        if path.is_dir():
            raise OSError(errno.EISDIR, "directory")
        if os.path.lexists(path) and not fields["flags"] & lib.CAREFUL_BLOCK_REPLACE:
            raise OSError(errno.EEXIST, "exists")
        nbytes, tag = fields["bytes"], fields["tag"]
        name = tag or secrets.randbits(64)
        temporary = path.parent / f".careful-{name:016x}.part"
        if any(tag and handle.temporary == temporary for handle in self.handles.values()):
            raise OSError(errno.EBUSY, "busy")
        continued = temporary.exists()
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o600)
        if not continued:
            size = nbytes + fields["tail_bytes"]
            if fields["flags"] & lib.CAREFUL_BLOCK_SPARSE or not size:
                os.ftruncate(fd, size)
            else:
                os.posix_fallocate(fd, 0, size)
            if fields["flags"] & lib.CAREFUL_BLOCK_SEED and path.is_file():
                os.pwrite(fd, path.read_bytes()[:nbytes], 0)
        said = int(continued)
        if fields["flags"] & lib.CAREFUL_BLOCK_COPY and self.copies:
            os.pwrite(fd, os.pread(self.handles[source].fd, nbytes, 0), 0)
            said = 2
        handle = self._add(Handle(fd, path, temporary, nbytes, bool(tag)))
        return Answer(args=[handle, said, 0, 0], payload=attr_bytes(os.fstat(fd)))

    def _batch(self, args: list[int], fields: dict[str, Any]) -> Answer:
        scratch = self.handles[args[0]]
        items = os.pread(scratch.fd, fields["bytes"], 0)
        how = ffi.new("struct careful_batch_how *")
        how.flags, how.umask, how.writable = args[1], fields["umask"], self.writable
        how.file_bytes_max, how.answer_bytes_max = (
            fields["file_bytes_max"],
            fields.get("answer_bytes_max", 8 << 20),
        )
        found = ffi.new("struct careful_batch_answer *")
        rc = lib.careful_batch(scratch.base, ffi.from_buffer(items), len(items), how, found)
        if rc:
            return Answer(rc)
        fd = os.memfd_create("answer")
        os.write(fd, ffi.buffer(found.items, found.bytes))
        answer = Answer(args=[self._add(Handle(fd)), 0, found.bytes, found.failed])
        lib.careful_batch_release(found)
        return answer

    def _digest(self, fd: int, fields: dict[str, Any]) -> Answer:
        kind, end = fields["algorithm"], fields["offset"] + fields["bytes"]
        found = []
        for at in range(fields["offset"], end, fields["block_bytes"]):
            size = min(fields["block_bytes"], end - at)
            if kind == lib.CAREFUL_BLOCK_XXH3:
                found.append(xxhash.xxh3_64_digest(os.pread(fd, size, at)))
                continue
            digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
            assert lib.careful_digest(fd, at, size, kind, digest) == len(digest)
            found.append(bytes(digest))
        found = found[:5]
        return Answer(args=[len(found), 0, 0, 0], payload=b"".join(found))

    def _extents(self, fd: int, fields: dict[str, Any]) -> Answer:
        """Returns one extent at a time."""
        at, end = fields["offset"], fields["offset"] + fields["bytes"]
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return Answer(args=[0, end >> 32, end & 0xFFFFFFFF, 0])
        if begin >= end:
            return Answer(args=[0, end >> 32, end & 0xFFFFFFFF, 0])
        stop = min(os.lseek(fd, begin, os.SEEK_HOLE), end)
        payload = begin.to_bytes(8, "big") + (stop - begin).to_bytes(8, "big")
        return Answer(args=[1, stop >> 32, stop & 0xFFFFFFFF, 0], payload=payload)

    def _commit(self, args: list[int], fields: dict[str, Any]) -> Answer:
        handle = self.handles.pop(args[0], None)
        if handle is None:
            return Answer(-errno.EBADF)
        if handle.path is None:  # a write in place: no new name
            found = os.fstat(handle.fd)
            os.close(handle.fd)
            return Answer(payload=attr_bytes(found))
        assert handle.temporary is not None
        if os.path.lexists(handle.path) and not args[1] & lib.CAREFUL_BLOCK_REPLACE:
            os.close(handle.fd)
            if not handle.keep:
                handle.temporary.unlink()
            return Answer(-errno.EEXIST)
        os.ftruncate(handle.fd, handle.nbytes or fields["bytes"])
        mode = fields["mode"]
        if handle.path.is_file() and not args[1] & lib.CAREFUL_BLOCK_MODE:
            mode = stat.S_IMODE(handle.path.stat().st_mode)
        os.fchmod(handle.fd, mode)
        if fields["mtime_ns"]:
            os.utime(handle.fd, ns=(0, fields["mtime_ns"]))
        if args[1] & lib.CAREFUL_BLOCK_REPLACE:
            handle.temporary.replace(handle.path)
        else:
            handle.temporary.rename(handle.path)
        found = os.fstat(handle.fd)
        os.close(handle.fd)
        return Answer(payload=attr_bytes(found))

    def _close(self, number: int, discard: bool) -> Answer:
        handle = self.handles.pop(number, None)
        if handle is None:
            return Answer(-errno.EBADF)
        found = os.fstat(handle.fd)
        os.close(handle.fd)
        if handle.base >= 0:
            os.close(handle.base)
        if handle.temporary is not None and (discard or not handle.keep):
            handle.temporary.unlink()
        return Answer(payload=attr_bytes(found))

    def _list(self, path: Path, recursive: bool) -> Answer:
        records = bytearray()
        for entry in self._entries(path, path, recursive):
            found = entry.lstat()
            name = os.fsencode(entry.relative_to(path))
            target = os.fsencode(entry.readlink()) if stat.S_ISLNK(found.st_mode) else b""
            tail = unpack("careful_block_attr", attr_bytes(found))
            head = pack(
                "careful_block_entry",
                **{f"attr.{key}": value for key, value in tail.items()},
                name_bytes=len(name),
                target_bytes=len(target),
            )
            record = head + name + target
            records += record + bytes(-len(record) % 8)
        fd = os.memfd_create("listing")
        os.write(fd, records)
        return Answer(args=[self._add(Handle(fd)), 0, len(records), self.unlisted])

    def _entries(self, top: Path, path: Path, recursive: bool) -> list[Path]:
        found = []
        for entry in sorted(path.iterdir()):
            found.append(entry)
            if recursive and entry.is_dir() and not entry.is_symlink():
                found += self._entries(top, entry, recursive)
        return found
