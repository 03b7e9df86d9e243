"""Processes inside a lab's namespaces: which there are, and ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from laboratory.state import NETNS


def start_of(pid: int) -> str:
    """When a process started (field 22 of stat), "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def processes_in(namespaces: list[str]) -> list[tuple[int, str, str]]:
    """(pid, command name, namespace) of each process inside."""
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
    """Ask processes to end, then make them. A process that has left the namespaces is spared."""
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
                    signal.pidfd_send_signal(handle, signal.SIGCONT)  # where it was stopped
            os.close(handle)
        while inside & set(pids):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
            inside = {pid for pid, _, _ in processes_in(namespaces)}
        else:
            return
