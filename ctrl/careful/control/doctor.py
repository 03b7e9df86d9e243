"""What stands in the way of `up`: looked at, and put right where something is missing.

check() changes nothing and needs no privilege: what it could not see it says. Calls checks,
which need libcareful; where that cannot be loaded, doctor says so and nothing else.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path

from careful.control.finding import FAIL, OK, Finding
from careful.errors import CarefulError

BPFFS = Path("/sys/fs/bpf")


def check(ifname: str, name: str | None, config_path: Path | None = None) -> list[Finding]:
    """Look at everything, change nothing.

    Args:
        ifname: the interface.
        name: of the instance, by option or CAREFUL_INSTANCE.
        config_path: the configuration whose options of `up` count.
    """
    try:
        from careful.control import checks, config, instances
    except CarefulError as error:
        return [Finding("library", FAIL, str(error))]
    instance = instances.on_interface(ifname, name)
    options = config.load(config_path).options(instance.name)
    return checks.look(checks.Case(ifname, instance, options))


def bpffs_mounted() -> bool:
    """Whether a BPF file system is where maps are pinned."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if (point, kind) == (str(BPFFS), "bpf"):
            return True
    return False


def _mount_bpffs() -> str:
    if bpffs_mounted():
        return ""
    done = subprocess.run(
        ["mount", "-t", "bpf", "-o", "nosuid,nodev,noexec,mode=0700", "bpf", str(BPFFS)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise CarefulError(errno.EIO, done.stderr.strip(), f"mounting {BPFFS}")
    return f"mounted a BPF file system on {BPFFS}"


def _set_up(ifname: str) -> str:
    from careful.control import links

    link = links.find(ifname)
    if link.up:
        return ""
    links.set_up(link)
    return f"set {ifname} up"


def _clear(ifname: str, name: str | None) -> str:
    from careful.control import daemon, instances

    instance = instances.on_interface(ifname, name)
    with instances.changing(instance.name):
        instance = instances.find(instance.name)
        if instance.pid or instances.owner_without_daemon(instance.name):
            return ""
        done = daemon.clear(instance, ifname)
    return "removed what a killed carefuld had left" if done else ""


def fix(ifname: str, name: str | None) -> list[Finding]:
    """Put right what can be: bpffs, the interface's state, leftovers.

    Raises:
        CarefulError: not root, or something could not be done.
    """
    from careful.control import instances, links

    instances.need_root(f"doctor --fix {ifname}")
    links.find(ifname)
    steps: list[tuple[str, Callable[[], str]]] = [
        ("bpffs", _mount_bpffs),
        ("interface", lambda: _set_up(ifname)),
        ("instance", lambda: _clear(ifname, name)),
    ]
    return [Finding(check, OK, act() or "nothing to do") for check, act in steps]
