"""carefuld's socket, if carefuld is from another release than this command."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from careful._abi import ffi, lib, sizeof
from careful.daemon.client import AsyncClient, Client
from careful.errors import CarefulError


@contextmanager
def carefuld(
    path: Path, version: int, payload: bytes = b"", header_bytes: int = sizeof("careful_ipc")
) -> Iterator[None]:
    """Answers one question in this version of the socket."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        with listening, listening.accept()[0] as client:
            header = ffi.new("struct careful_ipc *")
            ffi.memmove(header, client.recv(1 << 17), sizeof("careful_ipc"))
            header.version, header.payload_bytes = version, len(payload)
            client.send(bytes(ffi.buffer(header))[:header_bytes] + payload)
            client.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join(60)


@pytest.mark.parametrize("peers", [False, True])
def test_client__of_another_release_gets_advice(tmp_path: Path, peers: bool) -> None:
    """The client checks the version before it reads fields with another layout."""
    path = tmp_path / "sock"
    older = lib.CAREFUL_IPC_VERSION - 1
    with carefuld(path, older, bytes(4096)), Client(path) as client:
        with pytest.raises(CarefulError, match=r"another release.*restart it") as caught:
            client.peers() if peers else client.info()
        assert caught.value.errno == errno.EPROTO
        assert f"version {older}" in str(caught.value)


def test_client__of_another_release_has_a_shorter_header(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    newer = lib.CAREFUL_IPC_VERSION + 1
    text = pytest.raises(CarefulError, match=f"version {newer}, this command")
    with carefuld(path, newer, header_bytes=8), Client(path) as client, text:
        client.info()


def test_client__a_full_carefuld_does_run(tmp_path: Path) -> None:
    """A hanging carefuld with a full queue of connections is not reported as not running."""
    path = tmp_path / "sock"
    with ExitStack() as opened:
        listening = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(str(path))
        listening.listen(1)
        text = opened.enter_context(
            pytest.raises(CarefulError, match="too many clients are waiting")
        )
        for _ in range(8):
            opened.enter_context(Client(path))
    assert text.value.errno == errno.EAGAIN


def test_ask__a_full_socket_does_not_block_the_event_loop(tmp_path: Path) -> None:
    """While carefuld is stopped the event loop continues; the questions continue with carefuld."""
    path, count = tmp_path / "sock", 200

    def answer_all(listening: socket.socket) -> None:
        with listening.accept()[0] as client:
            for _ in range(count):
                header = ffi.new("struct careful_ipc *")
                ffi.memmove(header, client.recv(1 << 17), sizeof("careful_ipc"))
                header.payload_bytes = 0
                client.send(bytes(ffi.buffer(header)))

    async def main(listening: socket.socket) -> None:
        with Client(path) as client:
            ipc = AsyncClient(client)
            asked = [
                asyncio.ensure_future(ipc.ask(lib.CAREFUL_IPC_INFO, bytes(60_000)))
                for _ in range(count)
            ]
            began = time.monotonic()
            await asyncio.sleep(0.01)
            assert time.monotonic() - began < 20  # not 30 s and an error
            assert client.in_flight < count
            given_up = asked.pop()
            given_up.cancel()
            ipc.tell(lib.CAREFUL_IPC_FILE_REMOVE)
            thread = threading.Thread(target=answer_all, args=(listening,))
            thread.start()
            assert all(one.status == 0 for one in await asyncio.gather(*asked))
            while client.in_flight or thread.is_alive():
                await asyncio.sleep(0.01)
            ipc.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        asyncio.run(asyncio.wait_for(main(listening), 60))
