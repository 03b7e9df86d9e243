"""Restores virtual machines from a piece of another host's memory.

Implements Firecracker's protocol ("Handling page faults on snapshot resume"). A VM monitor connects
to a Unix socket and sends its userfaultfd, with a JSON list of the parts of the machine's memory:
base_host_virt_addr, size and offset of each, in bytes. The connection lives as long as the memory.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from careful.errors import CarefulError, from_os
from careful.memory.host import Host

#: The longest list of parts, bytes.
_LIST_BYTES = 1 << 16
_PAGE = 4096
#: Longest wait for the list, seconds.
_LIST_S = 10.0


def parts(text: bytes) -> list[tuple[int, int, int]]:
    """Returns address, size and offset of each part of a machine's memory.

    Raises:
        CarefulError: the list is malformed or empty, or has pages that are not of 4096 bytes.
    """
    try:
        rows = json.loads(text)
        memory = [
            (int(row["base_host_virt_addr"]), int(row["size"]), int(row["offset"])) for row in rows
        ]
        page_sizes = {int(row.get("page_size", row.get("page_size_kib", _PAGE))) for row in rows}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CarefulError(errno.EPROTO, f"malformed list of parts: {error!r}", "monitor") from None
    if page_sizes - {_PAGE, 4}:
        problem = "only pages of 4096 bytes can be served: restore without huge pages"
    elif not memory:
        problem = "the list of parts is empty"
    elif any(number < 0 or number % _PAGE for part in memory for number in part):
        problem = "an address, size or offset is not a multiple of 4096"
    else:
        return memory
    raise CarefulError(errno.EINVAL, problem, "monitor")


def _serve(
    connection: socket.socket, host: Host, name: str, owner: str, report: Callable[[str], object]
) -> None:
    """Serves one machine until its monitor closes the connection."""
    with connection, ExitStack() as stack:
        try:
            connection.settimeout(_LIST_S)
            text, fds, _, _ = socket.recv_fds(connection, _LIST_BYTES, 1)
            for fd in fds:
                stack.callback(os.close, fd)
            if not fds:
                raise CarefulError(errno.EPROTO, "it sent no userfaultfd", "monitor")
            memory = parts(text)
            for base, nbytes, offset in memory:
                piece = host.open(name, owner=owner)
                stack.callback(piece.close, discard=True)
                piece.serve(fds[0], base, offset, nbytes)
            report(f"serves {len(memory)} parts of a machine's memory")
            connection.settimeout(None)
            while connection.recv(_LIST_BYTES):
                pass
        except (CarefulError, OSError) as error:
            report(str(error))


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listens at a path that only this user can connect to, and removes it at the end.

    Raises:
        CarefulError: the path exists, or cannot be made.
    """
    server = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        server.bind(str(path))
        server.listen()
    except OSError as error:
        server.close()
        raise from_os(error, str(path)) from None
    finally:
        os.umask(before)
    try:
        yield server
    finally:
        server.close()
        with suppress(OSError):
            path.unlink()


def serve(
    host: Host, name: str, owner: str, path: Path, report: Callable[[str], object]
) -> NoReturn:
    """Serves the machines whose monitors connect to a socket, until Ctrl-C.

    Args:
        host: lends the memory.
        name: of the piece with the machines' memory.
        owner: of the piece; needed if several hosts share a piece of that name.
        path: of the socket.
        report: receives a line about each machine.
    """
    host.stat(name, owner=owner)
    with listening(path) as server:
        report(f"{host.name}:{name} for machines that connect to {path}")
        while True:
            connection, _ = server.accept()
            threading.Thread(
                target=_serve, args=(connection, host, name, owner, report), daemon=True
            ).start()
