"""Client of carefuld's local socket (ipc.h): several questions in flight, one thread.

File data does not pass through the socket, only the descriptors of the files.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from careful._abi import CData, Value, ffi, layout, lib, sizeof
from careful.address import Address
from careful.closing import Closing
from careful.errors import UNANSWERED, CarefulError, OtherReleaseError, check, meaning
from careful.units import shown_time

_HEADER_BYTES = sizeof("careful_ipc")
_VERSION = layout("careful_ipc")[0]
assert _VERSION.name == "version"


@dataclass(frozen=True, slots=True)
class Answer:
    """carefuld's answer to one question.

    Attributes:
        status: 0 or -errno.
        peer: index of the peer (CONNECT).
        file: index of the registered file (FILE_ADD).
        nbytes: bytes moved (GET, STORE).
        digest: XXH3 of the bytes moved (GET, STORE).
        args: the four words of a reply (REQUEST).
        payload: the answer's payload.
    """

    status: int
    peer: int
    file: int
    nbytes: int
    digest: int
    args: tuple[int, ...]
    payload: bytes

    def check(self, subject: str) -> Answer:
        """Returns this answer; raises CarefulError about `subject` if the status is a failure."""
        check(self.status, subject)
        return self


Done = Callable[[Answer], None]
#: How long carefuld may read nothing from its socket, seconds.
_READS_S = 30.0
_DENIED = "only root may connect (sudo), or the group of up --group"
#: Why connecting failed although carefuld runs.
_UNCONNECTED = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EAGAIN: "carefuld does not answer, and too many clients are waiting: try again",
}


class Client(Closing):
    """A connection to the carefuld of one instance. Raises CarefulError: nothing listens at `path`.

    Args:
        path: carefuld's socket, /run/careful/INSTANCE/sock.
        name: carefuld's name in errors.
        timeout_s: how long call() waits for an answer by default, seconds.
    """

    def __init__(self, path: Path, name: str = "carefuld", timeout_s: float = 10.0) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._waiting: dict[int, Done] = {}
        self._last_id = 0
        self._buffer = bytearray(_HEADER_BYTES + lib.CAREFUL_IPC_PAYLOAD_BYTES)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            text = _UNCONNECTED.get(error.errno or 0, "it is not running")
            raise CarefulError(error.errno or errno.EIO, text, name) from None

    def close(self) -> None:
        """Closes the connection; carefuld drops the questions in flight."""
        self._socket.close()
        self._waiting.clear()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def submit(
        self, op: int, done: Done, payload: bytes = b"", fd: int | None = None, **fields: Value
    ) -> None:
        """Asks a question; `done` runs with its answer inside receive(). Raises CarefulError: the
        connection is gone, or carefuld reads nothing for 30 s.

        Args:
            op: CAREFUL_IPC_*.
            done: called once.
            payload: at most CAREFUL_IPC_PAYLOAD_BYTES.
            fd: a descriptor to pass on.
            **fields: of struct careful_ipc.
        """
        while len(self._waiting) >= lib.CAREFUL_IPC_INFLIGHT:
            self._wait(_READS_S, write=False)
        while not self.try_submit(op, done, payload, fd, **fields):
            self._wait(_READS_S, write=True)

    def try_submit(
        self, op: int, done: Done, payload: bytes = b"", fd: int | None = None, **fields: Value
    ) -> bool:
        """Asks a question as submit() does; returns False if the socket has no room."""
        header = ffi.new("struct careful_ipc *", fields)
        header.version = lib.CAREFUL_IPC_VERSION
        header.op = op
        header.id = self._last_id + 1
        header.payload_bytes = len(payload)
        control = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))] if fd is not None else []
        )
        try:
            self._socket.sendmsg([bytes(ffi.buffer(header)), payload], control)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._connection_error(error) from None
        self._last_id += 1
        self._waiting[self._last_id] = done
        return True

    def silence_error(self, timeout_s: float) -> CarefulError:
        """Returns the error for a carefuld that reads or answers nothing for `timeout_s`."""
        text = f"no answer in {shown_time(timeout_s * 1e6)}"
        return CarefulError(errno.ETIMEDOUT, text, self.name)

    def _wait(self, timeout_s: float, write: bool) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if write else 0))
        events = poller.poll(timeout_s * 1000)
        if not events:
            raise self.silence_error(timeout_s)
        if events[0][1] & ~select.POLLOUT:
            self.receive()

    def _connection_error(self, error: OSError | None) -> CarefulError:
        if isinstance(error, CarefulError):
            return error
        with suppress(BlockingIOError, ConnectionError):  # carefuld's last packet may follow
            size = self._socket.recv_into(self._buffer)
            try:
                self._check_version(size)
            except CarefulError as version_error:
                return version_error
            header = ffi.from_buffer("struct careful_ipc *", self._buffer)
            if size >= _HEADER_BYTES and not header.id:
                return self._refusal(header)
        return CarefulError(errno.ENOTCONN, "carefuld ended; its log says why", self.name)

    def _refusal(self, header: CData) -> CarefulError:
        """Returns the reason for ending a connection, from a packet with id 0."""
        text = meaning(-header.status)
        if header.status == -errno.EUSERS:
            owner = " of this user" if header.args[1] else ""
            text = f"carefuld serves {header.args[0]} clients{owner} already"
            text += "; try again when one has ended"
        return CarefulError(-header.status, text, self.name)

    def receive(self) -> int:
        """Reads the available answers and runs their callbacks; returns the number of answers."""
        count = 0
        while self._socket.fileno() >= 0:
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                break
            except OSError as error:
                raise self._connection_error(error) from None
            self._check_version(size)
            if size < _HEADER_BYTES:
                raise self._connection_error(None)
            self._deliver(size)
            count += 1
        return count

    def _check_version(self, size: int) -> None:
        """Checks the version before other fields are read: another version may move them."""
        version = int.from_bytes(self._buffer[: _VERSION.size], sys.byteorder)
        if size >= _VERSION.size and version != lib.CAREFUL_IPC_VERSION:
            text = (
                f"carefuld is from another release: its socket speaks version {version}, this "
                f"command {lib.CAREFUL_IPC_VERSION} (carefulctl --version); restart it"
            )
            raise OtherReleaseError(errno.EPROTO, text, self.name)

    def _deliver(self, size: int) -> None:
        header = ffi.from_buffer("struct careful_ipc *", self._buffer)
        if not header.id:
            raise self._refusal(header)
        end = min(size, _HEADER_BYTES + header.payload_bytes)
        answer = Answer(
            header.status,
            header.peer,
            header.file,
            header.bytes,
            header.digest,
            tuple(header.args),
            bytes(self._buffer[_HEADER_BYTES:end]),
        )
        done = self._waiting.pop(header.id, None)
        ffi.release(header)
        if done is not None:
            done(answer)

    def call(
        self,
        op: int,
        subject: str,
        *,
        payload: bytes = b"",
        timeout_s: float | None = None,
        accepted_status: int = 0,
        **fields: Value,
    ) -> Answer:
        """Asks one question and waits for its answer. Raises CarefulError: a failure, no answer in
        time, or the connection is gone.

        Args:
            op: CAREFUL_IPC_*.
            subject: what an error is about.
            payload: the question's payload.
            timeout_s: how long to wait, seconds; None: the client's default.
            accepted_status: a status that is no failure either.
            **fields: of struct careful_ipc.
        """
        answers: list[Answer] = []
        self.submit(op, answers.append, payload, **fields)
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while not answers:
            self._wait(max(0.0, deadline - time.monotonic()), write=False)
        return answers[0] if answers[0].status == accepted_status else answers[0].check(subject)

    def connect(self, address: Address, host: str, timeout_s: float, **more: Value) -> Answer:
        """Opens a session with a peer; its index is in the answer. Raises CarefulError: the peer is
        unreachable, silent, of another version or out of windows.

        Args:
            address: the peer's address.
            host: the peer's name for errors.
            timeout_s: limit of the handshake, seconds.
            **more: further arguments of call().
        """
        try:
            return self.call(
                lib.CAREFUL_IPC_CONNECT,
                host,
                payload=address.sockaddr(),
                bytes=int(timeout_s * 1000),
                timeout_s=timeout_s + 1,
                **more,
            )
        except CarefulError as error:
            if (error.errno, error.what) != (errno.ETIMEDOUT, host):
                raise
            text = UNANSWERED.format(port=address.port or self.info().port)
            raise CarefulError(errno.ETIMEDOUT, text, host) from None

    def info(self) -> CData:
        """Returns what is in effect, a `struct careful_info`."""
        answer = self.call(lib.CAREFUL_IPC_INFO, self.name)
        return _copy_of("careful_info", answer.payload)

    def peers(self) -> list[CData]:
        return peers_of(self.call(lib.CAREFUL_IPC_PEERS, self.name).payload)

    def programs(self) -> list[CData]:
        answer = self.call(lib.CAREFUL_IPC_PROGRAMS, self.name)
        return _copies_of("careful_program_info", answer.payload)


def peers_of(payload: bytes) -> list[CData]:
    """Unpacks the answer to PEERS."""
    return _copies_of("careful_peer_info", payload)


def _copies_of(name: str, payload: bytes) -> list[CData]:
    size = sizeof(name)
    starts = range(0, len(payload) - size + 1, size)
    return [_copy_of(name, payload[at : at + size]) for at in starts]


def _copy_of(name: str, data: bytes) -> CData:
    if len(data) < sizeof(name):
        text = "carefuld is from another build than this command; restart it"
        raise CarefulError(errno.EPROTO, text)
    copy = ffi.new(f"struct {name} *")
    ffi.memmove(copy, data, sizeof(name))
    return copy


class AsyncClient:
    """A Client inside an asyncio event loop; nothing else uses the Client until close()."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._loop = asyncio.get_running_loop()
        self._futures: set[asyncio.Future[Answer]] = set()
        self._failure: CarefulError | None = None
        self._slots = asyncio.Semaphore(lib.CAREFUL_IPC_INFLIGHT)
        self._sending = asyncio.Lock()
        self._writable: asyncio.Future[None] | None = None
        self._tell_tasks: set[asyncio.Task[None]] = set()
        self._loop.add_reader(client.fileno(), self._readable)

    def close(self) -> None:
        """Stops reading; the client itself stays open."""
        if self.client.fileno() >= 0:
            self._loop.remove_reader(self.client.fileno())

    def _readable(self) -> None:
        try:
            self.client.receive()
        except CarefulError as error:
            self.fail(error)

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def fail(self, error: CarefulError) -> None:
        """Stops reading; `error` ends all present and later questions."""
        if self._failure is None:
            self._failure = error
        self.close()
        self._slots.release()  # wakes the next waiter, which raises and wakes another
        self._on_writable()
        for future in tuple(self._futures):
            if not future.done():
                future.set_exception(self._failure)

    async def ask(
        self,
        op: int,
        payload: bytes = b"",
        fd: int | None = None,
        on_unheard: Done | None = None,
        **fields: Value,
    ) -> Answer:
        """Asks a question and returns its answer, whatever its status. Raises CarefulError: the
        connection is gone.

        Args:
            op: CAREFUL_IPC_*.
            payload: the question's payload.
            fd: a descriptor to pass on.
            on_unheard: called with the answer if the caller was cancelled meanwhile.
            **fields: of struct careful_ipc.
        """
        await self._slots.acquire()  # without a slot, the client itself would block
        if self._failure is not None:
            self._slots.release()
            raise self._failure
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

        def done(answer: Answer) -> None:
            self._slots.release()
            if not future.done():
                future.set_result(answer)
            elif on_unheard is not None:
                on_unheard(answer)

        try:
            async with self._sending:
                if self._failure is not None:
                    raise self._failure
                while not self.client.try_submit(op, done, payload, fd, **fields):
                    await self._wait_writable()
        except CarefulError as error:
            future.cancel()  # nobody awaits it
            self.fail(error)
            raise
        except asyncio.CancelledError:
            future.cancel()
            self._slots.release()
            raise
        return await future

    def _on_writable(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    async def _wait_writable(self) -> None:
        ready = self._writable = self._loop.create_future()
        self._loop.add_writer(self.client.fileno(), self._on_writable)
        try:
            async with asyncio.timeout(_READS_S):
                await ready
        except TimeoutError:
            raise self.client.silence_error(_READS_S) from None
        finally:
            self._writable = None
            if self.client.fileno() >= 0:
                self._loop.remove_writer(self.client.fileno())
        if self._failure is not None:
            raise self._failure

    def tell(self, op: int, **fields: Value) -> None:
        """Asks a question and ignores the answer, even if the connection is gone."""
        with suppress(CarefulError):
            if self.client.try_submit(op, lambda _: None, **fields):
                return
            task = self._loop.create_task(self._ask_quietly(op, **fields))
            self._tell_tasks.add(task)
            task.add_done_callback(self._tell_tasks.discard)

    async def _ask_quietly(self, op: int, **fields: Value) -> None:
        with suppress(CarefulError):
            await self.ask(op, **fields)
