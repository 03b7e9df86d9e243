"""Three hosts on a switch for faults.py; faults can unmount their bpffs and set their clock.

The hosts run in a mount namespace and with a preloaded clock_gettime(), so the machine's mounts
and clock stay untouched.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from careful.control.instance import maps
from careful.control.plans import tune_entry
from careful.errors import CarefulError
from hosts import MIB, PINS, RUN, Host, alive, make_file, wait_for
from lab import Lab, tool

EXPORTED = "big"
FILE_BYTES = 12 * MIB
#: Fragment sizes, bytes: small, so that many are under way; and full frames of a lab's MTU.
SLOW_BYTES, FAST_BYTES = 256, 3694
#: CLOCK_REALTIME minus the seconds in the file $CLOCK_BACK.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <stdint.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static const volatile int64_t *back;
__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CLOCK_BACK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at = mmap(NULL, sizeof(*back), PROT_READ, MAP_SHARED, fd, 0);
	back = at == MAP_FAILED ? NULL : at;
}
int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(clock, now);
	if (!rc && clock == CLOCK_REALTIME && back)
		now->tv_sec -= *back;
	return rc;
}
time_t time(time_t *at)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return at ? (*at = now.tv_sec) : now.tv_sec;
}
int gettimeofday(struct timeval *tv, void *zone)
{
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*tv = (struct timeval){ now.tv_sec, now.tv_nsec / 1000 };
	return 0;
}
"""
_HOLD = """
for one in /run/netns/*; do umount -l "$one" 2>/dev/null; done
mount -t bpf bpf /sys/fs/bpf && echo ready && exec sleep infinity
"""


class PrivateNamespace:
    """A mount namespace with its own bpffs, and its own wall clock."""

    def __init__(self, folder: Path) -> None:
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", _HOLD]
        self._holder = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n", "the namespace has no bpffs"
        self.mounts = f"/proc/{self._holder.pid}/ns/mnt"
        self.pins = self.seen(maps.PINS)
        self._back = folder / "back"
        self._back.write_bytes(bytes(8))
        self._env = [f"CLOCK_BACK={self._back}"]
        if compiler := shutil.which("cc"):
            source, built = folder / "clock.c", folder / "clock.so"
            source.write_text(CLOCK)
            argv = [compiler, "-shared", "-fPIC", "-O2", str(source), "-o", str(built), "-ldl"]
            subprocess.run(argv, check=True)
            self._env.append(f"LD_PRELOAD={built}")

    @property
    def has_clock(self) -> bool:
        """Reports whether the clock was built; without a C compiler it is not."""
        return len(self._env) > 1

    def argv(self, *command: str | Path) -> list[str]:
        """Returns the words that run a command in the namespace."""
        return ["nsenter", f"--mount={self.mounts}", "env", *self._env, *map(str, command)]

    def seen(self, path: Path) -> Path:
        """Returns the path, outside of the namespace, of its file `path`."""
        return Path(f"/proc/{self._holder.pid}/root{path}")

    def run(self, line: str) -> str:
        """Runs a command in the namespace. Returns its output."""
        argv = self.argv(*line.split())
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def set_back(self, seconds: int) -> None:
        """Sets the clock back by this time."""
        with self._back.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little"))

    def close(self) -> None:
        """Ends the namespace with its last process."""
        self._holder.kill()
        self._holder.communicate()


class NamespacedHost(Host):
    """A host whose commands run in a PrivateNamespace."""

    def __init__(self, namespace: PrivateNamespace, lab: Lab, name: str, folder: Path) -> None:
        super().__init__(lab, name, folder)
        self.namespace = namespace

    def ctl(
        self, *args: str | Path, check: bool = True, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run carefulctl to its end."""
        check = check and args[0] != "status"  # exit status 3, not well, is no error here
        argv = self.namespace.argv("carefulctl", *args)
        return self.lab.run(self.name, *argv, check=check, **more)

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        """Start carefulctl."""
        return self.lab.start(self.name, *self.namespace.argv("carefulctl", *args))


class FaultRig:
    """Three hosts on a switch; each exports a file. No fault hits the third host."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.namespace = PrivateNamespace(folder)
        self.switch = f"careful-{lab.name}-sw"
        self.hosts = [NamespacedHost(self.namespace, lab, name, folder) for name in lab.hosts]
        self.contents: dict[str, bytes] = {}
        for seed, host in enumerate(self.hosts):
            self.contents[host.name] = make_file(host.export / EXPORTED, FILE_BYTES, seed)
            host.up("--peers", "4")
        self._open = self.opened()
        self.disk_fd = -1  # fault_kinds.sealed_disk()'s descriptor

    def ensure_up(self, host: Host) -> None:
        """Brings a host up again if its carefuld ended."""
        with contextlib.suppress(OSError, ValueError):
            if alive(host.pid):
                return
        host.up("--peers", "4")

    def clear(self) -> None:
        """Removes the files of earlier rounds."""
        for host in self.hosts:
            for path in (*host.own.iterdir(), *host.export.iterdir()):
                if path.name != EXPORTED and not path.is_dir():
                    path.unlink()

    @contextlib.contextmanager
    def small_fragments(self) -> Iterator[None]:
        """Cuts messages into many small fragments within the block."""
        with contextlib.ExitStack() as stack:
            tables = []
            for host in self.hosts:
                pin = self.namespace.pins / self.lab.instance(host.name) / "tune"
                with contextlib.suppress(CarefulError):
                    tables.append(stack.enter_context(maps.tune_map_at(pin)))
            self._set_fragments(tables, SLOW_BYTES)
            try:
                yield
            finally:
                self._set_fragments(tables, FAST_BYTES)

    def _set_fragments(self, tables: list[maps.PinnedMap], nbytes: int) -> None:
        for table in tables:
            tune_entry.apply(
                table, tune_entry.all_slots(), tune_entry.change(fragment_bytes=nbytes)
            )

    def run(self, line: str) -> str:
        """Runs a command outside of the hosts. Returns its output."""
        argv = line.split()
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    @contextlib.contextmanager
    def loop_device(self, image: Path, *folders: Path) -> Iterator[None]:
        """Mounts the file as an ext4 file system in the namespace, on these new folders."""
        device = self.run(f"losetup -f --show {image}")
        try:
            self.run(f"mkfs.ext4 -q -O ^has_journal {device}")
            with self.mounted(f"mount {device}", *folders):
                yield
        finally:
            self.run(f"losetup -d {device}")

    @contextlib.contextmanager
    def mounted(self, mount: str, *folders: Path) -> Iterator[None]:
        """Runs a mount command for each of these new folders; unmounts them by force."""
        with contextlib.ExitStack() as stack:
            for folder in folders:
                folder.mkdir()
                stack.callback(folder.rmdir)
                self.namespace.run(f"{mount} {folder}")
                stack.callback(self.namespace.run, f"umount -l {folder}")
            yield

    def restore_all(self) -> None:
        """Restores the clock and every carefuld."""
        self.namespace.set_back(0)
        for host in self.hosts:
            self.ensure_up(host)

    def opened(self) -> dict[str, tuple[int, int]]:
        """Returns the pid of each host's carefuld, and how many descriptors it has open."""
        return {
            host.name: (host.pid, len(list(Path(f"/proc/{host.pid}/fd").iterdir())))
            for host in self.hosts
        }

    def check_round(self, before: dict[str, tuple[int, int]], more: int) -> None:
        """Checks that a round leaves no commands, loop devices or descriptors.

        Args:
            before: opened() at its beginning; carefulds that ended are not checked.
            more: descriptors that may be new.
        """
        left: list[str] = []

        def gone() -> bool:
            now = self.opened()
            grown = {
                name: count - before[name][1]
                for name, (pid, count) in now.items()
                if pid == before[name][0]
            }
            left[:] = [
                f"{count} descriptors of {name}" for name, count in grown.items() if count > more
            ]
            left.extend(self._loops())
            left.extend(line for line in self._running() if "carefulctl" in line)
            return not left

        with contextlib.suppress(AssertionError):
            wait_for(gone, "end of the round", 5)  # descriptors may still be closing
        assert not left, f"left behind: {left}"

    def close(self) -> list[str]:
        """Takes every carefuld down. Returns their leftovers."""
        bystander = self.hosts[-1].name
        (was, old), (now, new) = self._open[bystander], self.opened()[bystander]
        grown = new - old if now == was else 0
        for host in self.hosts:
            with contextlib.suppress(OSError, ValueError):
                os.kill(host.pid, signal.SIGCONT)
            host.ctl("down", "eth1", check=False)
        left = self._left()
        self.namespace.close()
        return left + ([f"{grown} descriptors of h3"] if grown > 2 else [])

    def _left(self) -> list[str]:
        names: list[Path] = []
        for host in self.hosts:
            one = self.lab.instance(host.name)
            names += [self.namespace.seen(PINS / one), RUN / one / "sock"]
        found = [str(path) for path in names if path.exists()]
        return found + self._loops() + self._running()

    def _loops(self) -> list[str]:
        loops = self.run("losetup --list --noheadings --output NAME,BACK-FILE")
        return [line for line in loops.splitlines() if str(self.folder) in line]

    def _running(self) -> list[str]:
        lines = tool("status").stdout.partition(f"{self.lab.name}: ")[2].splitlines()[1:]
        return list(itertools.takewhile(lambda line: line[:1] == " ", lines))
