"""Pages of virtual machines, restored from a piece of another host's memory.

Speaks the hand-over of Firecracker's snapshot restore (its documentation, "Handling page faults on
snapshot resume"). A VM monitor connects to a Unix socket and sends its userfaultfd, with a JSON
list of the parts of its memory: base_host_virt_addr, size and offset of each, in bytes. The
machine's memory ends with the connection.
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
#: Longest wait for a silent monitor, seconds.
_HAND_OVER_S = 10.0


def parts(text: bytes) -> list[tuple[int, int, int]]:
    """Returns address, size and offset of each part of a machine's memory.

    Raises:
        CarefulError: the list is malformed, or names pages that are not of 4096 bytes.
    """
    try:
        listed = json.loads(text)
        found = [
            (int(one["base_host_virt_addr"]), int(one["size"]), int(one["offset"]))
            for one in listed
        ]
        pages = {int(one.get("page_size", one.get("page_size_kib", _PAGE))) for one in listed}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CarefulError(errno.EPROTO, f"bad list of mappings: {error!r}", "monitor") from None
    if (
        not found
        or pages - {_PAGE, 4}
        or any(one < 0 or one % _PAGE for each in found for one in each)
    ):
        said = "only pages of 4096 bytes can be served: restore without huge pages"
        raise CarefulError(errno.EINVAL, said, "monitor")
    return found


def _serve(
    connection: socket.socket, host: Host, name: str, owner: str, tell: Callable[[str], object]
) -> None:
    """Serves one machine until its monitor closes the connection."""
    with connection, ExitStack() as stack:
        try:
            connection.settimeout(_HAND_OVER_S)
            text, fds, _, _ = socket.recv_fds(connection, _LIST_BYTES, 1)
            for fd in fds:
                stack.callback(os.close, fd)
            if not fds:
                raise CarefulError(errno.EPROTO, "no userfaultfd came", "monitor")
            for base, nbytes, offset in parts(text):
                piece = host.open(name, owner=owner)
                stack.callback(piece.close, discard=True)
                piece.serve(fds[0], base, offset, nbytes)
            tell(f"serves {len(parts(text))} parts of a machine's memory")
            connection.settimeout(None)
            while connection.recv(_LIST_BYTES):
                pass
        except (CarefulError, OSError) as error:
            tell(str(error))


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listens at a path that only this user can connect to; removes it at the end.

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


def serve(host: Host, name: str, owner: str, path: Path, tell: Callable[[str], object]) -> NoReturn:
    """Serves the machines whose monitors connect to a socket, until Ctrl-C.

    Args:
        host: lends the memory.
        name: of the piece with the machines' memory.
        owner: of the piece, if several hosts share one of that name.
        path: of the socket.
        tell: receives a line about each machine.
    """
    host.stat(name, owner=owner)
    with listening(path) as server:
        tell(f"{host.name}:{name} for machines that connect to {path}")
        while True:
            connection, _ = server.accept()
            threading.Thread(
                target=_serve, args=(connection, host, name, owner, tell), daemon=True
            ).start()
