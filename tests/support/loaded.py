"""carefulctl without its start-up: a process that has loaded it forks for each call.

Owns that process, one for each test process, and their protocol. A child continues like the program
after its imports, with the call's words, environment, directory, network namespace and standard
descriptors. Lab.start() starts the program itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

_CLONE_NEWNET = 0x40000000
#: Bytes of a call's words and environment.
_CALL_BYTES = 1 << 17
#: Modules that commands import only when they run.
_LATE = (
    "careful.control.instance.maps",
    "careful.node",
    "careful.transfer.run.verify",
)


# --- the caller


@cache
def _server() -> socket.socket:
    """Returns the socket of the process, which ends with us."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours


def _read(fds: Sequence[int], end: float) -> list[bytes]:
    """Reads pipes until all have ended. Raises TimeoutError at `end`."""
    said = dict.fromkeys(fds, b"")
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            if time.monotonic() >= end:
                raise TimeoutError
            for key, _ in selector.select(max(0.0, end - time.monotonic())):
                data = os.read(key.fd, 1 << 16)
                said[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return list(said.values())


def run(
    words: Sequence[str], env: dict[str, str], netns: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Runs `carefulctl` to its end in a network namespace. Kills it at TimeoutExpired.

    env: added to our own.
    """
    argv = ["carefulctl", *words]
    call = {"argv": argv, "env": {**os.environ, **env}, "cwd": str(Path.cwd())}
    given = [os.open(os.devnull, os.O_RDONLY), os.open(netns, os.O_RDONLY)]
    pipes = [os.pipe() for _ in ("output", "errors", "status")]
    readers = [reader for reader, _ in pipes]
    given += [writer for _, writer in pipes]
    try:
        try:
            socket.send_fds(_server(), [json.dumps(call).encode()], given)
        finally:
            for fd in given:
                os.close(fd)
        out, err, status = _read(readers, time.monotonic() + timeout_s)
    except TimeoutError:
        raise subprocess.TimeoutExpired(argv, timeout_s) from None
    finally:
        for fd in readers:
            os.close(fd)
    text, errors = (one.decode().replace("\r\n", "\n").replace("\r", "\n") for one in (out, err))
    return subprocess.CompletedProcess(argv, int(status), text, errors)


# --- the process


def _become(call: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    """Continues like the program after its imports."""
    from careful.cli import interrupt, start

    try:
        null, namespace, out, err, _ = fds
        for number, fd in enumerate((null, out, err)):
            os.dup2(fd, number)
        if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.closerange(3, 256)
        os.chdir(call["cwd"])
        os.environ.clear()
        os.environ.update(call["env"])
        sys.argv = call["argv"]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt.arm()
        start.main()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _load() -> None:
    """Imports everything that a command may need."""
    from careful.cli.main import cli

    modules = [f"careful.cli.{one.partition(':')[0]}" for one in cli.targets.values()]
    for name in (*modules, *_LATE):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # children share untouched memory


@dataclass
class _Call:
    """A child: pid, pidfd, and the socket for its status."""

    pid: int
    handle: int
    status: int


def _fork(calls: socket.socket) -> _Call | None:
    """Forks the child for the next call. Returns None if no call will come."""
    text, fds, _, _ = socket.recv_fds(calls, _CALL_BYTES, 5, socket.MSG_CMSG_CLOEXEC)
    if not text:
        return None
    pid = os.fork()
    if not pid:
        _become(json.loads(text), fds)
    for fd in fds[:-1]:
        os.close(fd)
    return _Call(pid, os.pidfd_open(pid), fds[-1])


def _serve(calls: socket.socket) -> None:
    """Forks for each call, and reports its end. Kills a child if its caller has gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(calls, selectors.EVENT_READ)
        while True:
            key, _ = selector.select()[0]  # only one: handling it may end the others
            if key.data is None:
                call = _fork(calls)
                if call is None:
                    return
                for fd in (call.handle, call.status):
                    selector.register(fd, selectors.EVENT_READ, call)
            elif key.fd == key.data.status:
                os.kill(key.data.pid, signal.SIGKILL)
                selector.unregister(key.fd)
            else:
                call = key.data
                ended = os.waitstatus_to_exitcode(os.waitpid(call.pid, 0)[1])
                with suppress(BrokenPipeError):
                    os.write(call.status, str(ended).encode())
                for fd in (call.handle, call.status):
                    if fd in selector.get_map():
                        selector.unregister(fd)
                    os.close(fd)


if __name__ == "__main__":
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as heard:
        _serve(heard)
