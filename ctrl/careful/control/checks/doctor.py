"""Finds what prevents `up`, and fixes settings that are missing.

check() changes nothing and needs no privilege: it names what it could not see. If libcareful cannot
be loaded, doctor reports only that.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from careful.control.checks.check_result import OK, REINSTALL, WARN, Finding, fail, ok, warn
from careful.errors import CarefulError, about

BPFFS = Path("/sys/fs/bpf")
MOUNTS = Path("/proc/self/mounts")


def check(
    ifname: str, name: str | None, config_path: Path | None = None, host: str = ""
) -> list[Finding]:
    """Runs all checks; changes nothing.

    name: the instance's name, by option or CAREFUL_INSTANCE; config_path: the configuration with
    the options of `up`, which count unless the instance runs; host: a host to try, "" for none.
    """
    try:
        from careful.control.checks import machine, other_host
        from careful.control.instance import choice
        from careful.control.options import command_line, config
    except CarefulError as error:
        return [fail("library", str(error), REINSTALL)]
    if host and ifname == "lo":
        raise CarefulError(errno.ENOTUNIQ, "", host)
    instance = choice.on_interface(ifname, name)
    settings = config.load(config_path)
    options = command_line.read(instance.argv) if instance.pid else settings.options(instance.name)
    case = machine.Case(ifname, instance, options, lambda host: settings.resolve(host).ip)
    findings = machine.look(case)
    if host and instance.pid:
        tried = list(other_host.look(host, settings.resolve_all(host), instance))
        if any(one.check == "control" for one in tried):  # this OK meant no traffic
            findings = [one for one in findings if (one.check, one.state) != ("control", OK)]
        findings += tried
    elif host:
        text = f"careful is not up on {ifname}, so {host} was not tried"
        findings.append(warn("host", text, f"carefulctl up {ifname}"))
    return findings


def split(names: Sequence[str], config_path: Path | None) -> tuple[str, str]:
    """Returns the interface and the host; without IFACE, the interface of the route to HOST."""
    name, host = (*names, "")[:2]
    with suppress(OSError):
        if host or socket.if_nametoindex(name):
            return name, host
    try:
        from careful.control.host import links
        from careful.control.options import config

        addresses = config.load(config_path).resolve_all(name)
    except CarefulError:
        return name, ""  # check() reports the error
    for address in addresses[:-1]:
        with suppress(CarefulError):
            return links.route_interface(address), name
    return links.route_interface(addresses[-1]), name


def bpffs_mounted() -> bool:
    """Reports whether a BPF file system is mounted on BPFFS."""
    # Bytes, because the names of other mounts can be anything.
    mounts = MOUNTS.read_bytes().split(b"\n")
    return any(line.split(b" ")[1:3] == [os.fsencode(BPFFS), b"bpf"] for line in mounts)


def _mount_bpffs() -> str:
    _run(("mount", "-t", "bpf", "-o", "nosuid,nodev,noexec,mode=0700", "bpf", str(BPFFS)))
    return f"mounted a BPF file system on {BPFFS}"


def _set_up(ifname: str) -> str:
    from careful.control.host import links

    links.set_up(links.find(ifname))
    return f"set {ifname} up"


def _clear(ifname: str, name: str | None) -> str:
    from careful.control.carefuld import daemon

    done = daemon.down(ifname, name, dead=True)
    return "removed what a killed carefuld had left" if done.cleared else ""


def _run(command: tuple[str, ...]) -> str:
    """Runs a command and returns it as text. Raises CarefulError if it is missing or fails."""
    with about(command[0]):
        done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())
        raise CarefulError(errno.EIO, output or f"status {done.returncode}", " ".join(command))
    return " ".join(command)


@dataclass(frozen=True)
class Step:
    """A fix that doctor can make.

    Attributes:
        check: the check's name, as in findings.
        what: the action, for the user's confirmation.
        act: makes the fix and returns a description; "": nothing to do.
        skipped: why the fix is not made now; "" if it is.
    """

    check: str
    what: str
    act: Callable[[], str]
    skipped: str = ""


def plan(ifname: str, name: str | None, config_path: Path | None = None) -> list[Step]:
    """Returns the possible fixes: bpffs, the interface's state and settings, leftovers.

    Settings of an interface in use are left alone: many drivers take the link down to change them,
    which would break its sessions. Raises CarefulError if not root, or if there is no such
    interface.
    """
    from careful.control.host import links
    from careful.control.instance import instances

    instances.need_root(f"doctor --fix {ifname}")
    steps = []
    if not bpffs_mounted():
        steps.append(Step("bpffs", f"mount a BPF file system on {BPFFS}", _mount_bpffs))
    link = links.find(ifname)
    if not link.up:
        steps.append(Step("interface", f"ip link set {ifname} up", lambda: _set_up(ifname)))
    findings = check(ifname, name, config_path)
    if any(
        finding.state == WARN and finding.check in ("instance", "qdisc") for finding in findings
    ):
        what = "remove what a killed carefuld left"
        steps.append(Step("instance", what, lambda: _clear(ifname, name)))
    used = instances.uses(link)
    reason = f"careful is up on {ifname}, and the fix may take the link down" if used else ""
    for finding in findings:
        if finding.fix:
            steps.append(
                Step(finding.check, " ".join(finding.fix), partial(_run, finding.fix), reason)
            )
    return steps


def fix(steps: Sequence[Step]) -> list[Finding]:
    """Makes the fixes; a failure does not stop the others."""
    done = []
    for step in steps:
        if step.skipped:
            done.append(warn(step.check, f"not changed: {step.skipped}", step.what))
            continue
        try:
            done.append(ok(step.check, step.act() or "nothing to do"))
        except CarefulError as error:
            done.append(warn(step.check, str(error), f"by hand: {step.what}"))
    checked = {finding.check for finding in done}
    rest = [name for name in ("bpffs", "interface", "instance") if name not in checked]
    return [*done, *(ok(name, "nothing to do") for name in rest)]
