"""Finds and ends processes inside a lab's namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from laboratory.state import NETNS


def start_of(pid: int) -> str:
    """Returns a process's start time (field 22 of stat), or ""."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def processes_in(namespaces: list[str]) -> list[tuple[int, str, str]]:
    """Returns (pid, command name, namespace) of each process inside."""
    inodes = {}
    for name in namespaces:
        with contextlib.suppress(FileNotFoundError):
            status = (NETNS / name).stat()
            inodes[status.st_dev, status.st_ino] = name
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                status = (path / "ns/net").stat()
                inside = inodes.get((status.st_dev, status.st_ino))
                if inside:
                    found.append((int(path.name), (path / "comm").read_text().strip(), inside))
    return found


def end(pids: list[int], namespaces: list[str], patience_s: float = 3.0) -> None:
    """Ends processes with SIGTERM, then SIGKILL, except those that have left the namespaces."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience_s
        handles = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handles.append((pid, os.pidfd_open(pid)))
        inside = {pid for pid, _, _ in processes_in(namespaces)}  # after pidfd_open: same process
        for pid, handle in handles:
            with contextlib.suppress(ProcessLookupError):
                if pid in inside:
                    signal.pidfd_send_signal(handle, number)
                    signal.pidfd_send_signal(handle, signal.SIGCONT)  # in case it was stopped
            os.close(handle)
        while inside & set(pids):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
            inside = {pid for pid, _, _ in processes_in(namespaces)}
        else:
            return
