"""The first process of an emulated machine: configures its network, then runs commands.

A request is a line of JSON on a virtio port. The answer begins with the request's token, because
answers to an earlier client may arrive late. The output follows in pieces: a byte (1: standard
output, 2: standard error, 0: the end), the length, the bytes; the bytes of the end are the exit
status. If the client goes away, its command is ended. Needs only the standard library.

Usage: agent.py HOST MTU, in the machine.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

PIECE = struct.Struct("!BI")
PORTS = Path("/sys/class/virtio-ports")
#: Interval at which each of the eight ports looks for a client, seconds.
NOBODY_S = 0.1
#: Longest time that a command's children may hold its output open after its end, seconds.
LINGER_S = 1.0
#: Longest time until this side sees that the client is present, seconds.
KNOWN_S = 10.0


def configure(host: int, mtu: int) -> None:
    """Configures eth1 like a lab host's."""
    socket.sethostname(f"h{host}")
    (nic,) = (one.name for one in Path("/sys/class/net").iterdir() if (one / "device").exists())
    for line in (
        "link set lo up",
        f"link set {nic} name eth1",
        f"link set eth1 mtu {mtu} up",
        f"addr add 10.77.0.{host}/24 dev eth1",
        f"addr add fd77::{host:x}/64 dev eth1 nodad",
    ):
        subprocess.run(["ip", *line.split()], check=True)


class Port:
    """A port for the host's `exec`, one client at a time."""

    def __init__(self, device: Path) -> None:
        self._file = os.open(device, os.O_RDWR)
        self._lock = threading.Lock()
        self._job: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """Runs requested commands for ever."""
        asked = b""
        while True:
            got = os.read(self._file, 65536)
            if not got:  # no client is connected
                asked = b""
                time.sleep(NOBODY_S)
                continue
            *whole, asked = (asked + got).split(b"\n")
            if whole:  # only the last request has a client that still waits
                self._run(json.loads(whole[-1]))

    def _run(self, request: dict[str, Any]) -> None:
        self._is_left()
        with self._lock:
            self._job = None
            self._write(request["token"].encode())
        try:
            self._job = job = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=request["cwd"],
                env=request["env"],
                start_new_session=True,
            )
        except OSError as error:
            self._say(2, f"{error.strerror}: {error.filename}\n".encode())
            self._say(0, b"127")
            return
        streams = [
            threading.Thread(target=self._pass_on, args=(job, kind, stream), daemon=True)
            for kind, stream in ((1, job.stdout), (2, job.stderr))
        ]
        for one in streams:
            one.start()
        if self._is_left_first(job):
            os.killpg(job.pid, signal.SIGTERM)
            job.wait()
            return
        job.wait()
        for one in streams:
            one.join(LINGER_S)
        self._say(0, str(job.returncode if job.returncode >= 0 else 128 - job.returncode).encode())

    def _is_left_first(self, job: subprocess.Popen[bytes]) -> bool:
        """Waits for the command or its client. Returns whether the client left first.

        It has left if no client is connected, or if another client sends a request.
        """
        ended = os.pidfd_open(job.pid)
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        poll.register(ended, select.POLLIN)
        found = dict(poll.poll())
        while ended not in found and found[self._file] & select.POLLHUP and not self._is_left():
            found = dict(poll.poll())
        os.close(ended)
        return ended not in found

    def _is_left(self) -> bool:
        """Waits until a client is connected. Reports whether none connects in time.

        A busy machine sees late that the earlier client has gone and a new one has connected.
        """
        poll = select.poll()
        poll.register(self._file, 0)
        until = time.monotonic() + KNOWN_S
        while any(event & select.POLLHUP for _, event in poll.poll(0)):
            if time.monotonic() > until:
                return True
            time.sleep(0.01)
        return False

    def _pass_on(self, job: subprocess.Popen[bytes], kind: int, stream: IO[bytes]) -> None:
        while data := stream.read1(65536):  # type: ignore[attr-defined]
            with self._lock:
                if self._job is job:  # otherwise the output would go to another client
                    self._write(PIECE.pack(kind, len(data)) + data)

    def _say(self, kind: int, data: bytes) -> None:
        with self._lock:
            self._write(PIECE.pack(kind, len(data)) + data)

    def _write(self, left: bytes) -> None:
        while left and not self._is_left():
            left = left[os.write(self._file, left) :]


def main() -> None:
    """Serves all ports in a child process. This process, the first, waits for orphans."""
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    host, mtu = map(int, sys.argv[1:])
    if os.fork():
        while True:
            try:
                os.wait()
            except ChildProcessError:
                time.sleep(1)
    configure(host, mtu)
    serve()


def serve() -> None:
    """Runs requested commands on any port."""
    ports = [one for one in PORTS.iterdir() if (one / "name").read_text().startswith("exec")]
    threads = [threading.Thread(target=Port(Path("/dev") / one.name).serve) for one in ports]
    for one in threads:
        one.start()


if __name__ == "__main__":
    main()
