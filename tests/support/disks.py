"""Small disks for tests: ext4 on a loop device that can be inspected and broken.

Owns the device and the mount; both are gone when the test ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts import wait_for

BLOCK_BYTES = 4096
_FIBMAP = 1


class Disk:
    """An ext4 file system of its own.

    Attributes:
        top: where it is mounted.
        device: the loop device.
    """

    def __init__(self, image: Path, top: Path, nbytes: int, inode_bytes: int) -> None:
        self.image, self.top = image, top
        with image.open("wb") as file:
            os.truncate(file.fileno(), nbytes)
        made = ["mkfs.ext4", "-q", "-F", "-b", str(BLOCK_BYTES), "-m", "0"]
        made += ["-I", str(inode_bytes), str(image)]
        subprocess.run(made, check=True, capture_output=True)
        found = subprocess.run(
            ["losetup", "--show", "-f", image], check=True, capture_output=True, text=True
        )
        self.device = Path(found.stdout.strip())
        top.mkdir(exist_ok=True)
        self.mount()

    def mount(self) -> None:
        """Mounts the disk; the journal is committed on demand, not by time."""
        # The type is given, since a probe reads to the device's end, which may be unreadable.
        argv = ["mount", "-t", "ext4", "-o", "commit=300", self.device, self.top]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

    def unmount(self) -> None:
        """Unmounts the disk, so that nothing of it stays in memory.

        A carefuld keeps a client's files open until it notices the client's end, and a process with
        its own mounts may still have this one.
        """
        argv = ["umount", self.top]
        wait_for(lambda: not subprocess.run(argv, capture_output=True).returncode, "unmounting")
        wait_for(self._is_free, "the end of the last mount")

    def _is_free(self) -> bool:
        """Reports whether no file system uses the device; the last write is the superblock."""
        try:
            os.close(os.open(self.device, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    def destroy(self) -> None:
        """Frees device and mount in any state."""
        subprocess.run(["umount", "-l", self.top], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", self.device], check=False, capture_output=True)

    def flushes(self) -> int:
        """Returns the number of flush requests to the disk (Documentation/block/stat)."""
        return int(Path(f"/sys/block/{self.device.name}/stat").read_text().split()[15])

    def break_last_block(self) -> Path:
        """Makes the last block of all files unreadable; returns the file that has it."""

        def last_block(path: Path) -> int:
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                index = (path.stat().st_size - 1) // BLOCK_BYTES
                answer = fcntl.ioctl(fd, _FIBMAP, struct.pack("i", index))
            finally:
                os.close(fd)
            return int(struct.unpack("i", answer)[0])

        last, path = max((last_block(one), one) for one in self.top.rglob("*") if one.is_file())
        self.unmount()
        os.truncate(self.image, last * BLOCK_BYTES)  # reads beyond the image are EIO
        self.mount()
        return path


MakeDisk = Callable[..., Disk]


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Makes disks: make_disk(top, nbytes, inode_bytes). Skips if that is not possible."""
    made: list[Disk] = []

    def make(top: Path, nbytes: int = 32 << 20, inode_bytes: int = 256) -> Disk:
        try:
            made.append(Disk(tmp_path / f"disk{len(made)}.img", top, nbytes, inode_bytes))
        except (OSError, subprocess.CalledProcessError) as error:
            message = getattr(error, "stderr", b"") or str(error).encode()
            pytest.skip(f"no ext4 on a loop device: {message.decode(errors='replace').strip()}")
        return made[-1]

    yield make
    for disk in made:
        disk.destroy()
