"""Finds the `tracer.Target`s on this machine by interface, by name, or by host."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from socket import AF_INET6, inet_pton

from careful._abi import ffi
from careful.address import Address
from careful.control.instance import choice, instances
from careful.control.tracing.tracer import Target
from careful.daemon.client import Client
from careful.daemon.route import Route
from careful.errors import CarefulError


def _target(name: str, pid: int) -> Target:
    try:
        return Target(name, pid)
    except CarefulError as error:
        error.what = f"instance {name}"
        raise


def target(ifname: str | None, instance: str | None) -> Target:
    """Returns the instance of an interface or a name; by default the only one that runs here.

    instance: its name, by option or CAREFUL_INSTANCE. Raises CarefulError: no instance runs, the
    choice is ambiguous, it has no probes, or no permission.
    """
    if ifname:
        found = choice.on_interface(ifname, instance)
    elif instance:
        found = instances.find(instance)
    else:
        found = choice.choose(None)
    pid = found.pid or instances.owner_without_daemon(found.name)
    if not pid:
        text = f"careful is not up: carefulctl up {ifname or 'IFACE'}"
        raise CarefulError(errno.ENOENT, text, ifname or f"instance {found.name}")
    instances.need_root("trace")
    instances.must_be_seen(found.name, pid)
    return _target(found.name, pid)


def _has_address(pid: int, address: Address) -> bool:
    """Reports whether an address belongs to a process' network namespace."""
    with suppress(OSError):
        if ":" in address.ip:
            bare = inet_pton(AF_INET6, address.ip.partition("%")[0]).hex()
            return bare in Path(f"/proc/{pid}/net/if_inet6").read_text()
        lines = Path(f"/proc/{pid}/net/fib_trie").read_text().splitlines()
        hosts = (a for a, b in pairwise(lines) if "/32 host LOCAL" in b)
        return any(line.split()[-1] == address.ip for line in hosts)
    return False


def at(address: Address, name: str, other_than: Target) -> Target | None:
    """Returns the instance of a host if it is on this machine, as in a lab; otherwise None.

    Args:
        address: the host's address; hosts of several labs may share it.
        name: the host's own name, by default its instance's; distinguishes such hosts.
        other_than: our own instance.
    """
    here = [instance for instance in instances.running() if _has_address(instance.pid, address)]
    here = [instance for instance in here if instance.name != other_than.name]
    if len(here) > 1:
        here = [instance for instance in here if instance.name == name]
    return _target(here[0].name, here[0].pid) if len(here) == 1 else None


def targets(ifname: str | None, instance: str | None, also: Sequence[str]) -> list[Target]:
    """Returns target() and others by name; raises like target()."""
    chosen = [target(ifname, instance)]
    for name in also:
        if name not in [known.name for known in chosen]:
            chosen.append(target(None, name))
    return chosen


def _peer_name(socket: Path, instance: str, address: Address) -> str:
    """Returns a peer's own name; "" without a session."""
    with Client(socket, f"carefuld of {instance}") as client:
        for info in client.peers():
            raw = bytes(ffi.buffer(ffi.addressof(info, "address")))
            if Address.from_sockaddr(raw).ip == address.ip:
                return str(ffi.string(info.name).decode(errors="replace"))
    return ""


def ends(route: Route) -> list[Target]:
    """Returns our instance, and that of the route's host if it is on this machine."""
    ours = target(None, route.instance)
    theirs = at(route.address, _peer_name(route.socket, route.instance, route.address), ours)
    return [ours, theirs] if theirs else [ours]
