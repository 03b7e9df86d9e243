"""Hosts for the nodes: network namespaces on this machine, all at one switch.

A process holds each namespace and ends when its input closes. So the namespaces disappear even if
this program is killed. Each host has an eth1, a /run and a bpffs of its own.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from careful import child
from careful.errors import CarefulError

#: Queue of a switch port, frames: more than all windows together.
_PORT_FRAMES = 8192
_UP_S = 30.0
#: Commands of a namespace's first process. Without IPv6 the kernel sends nothing by itself.
_HOLD = """
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t bpf -o mode=0700 bpf /sys/fs/bpf
ip link set lo up
echo ready
exec cat
"""


@dataclass(frozen=True)
class Host:
    """A host that runs a node.

    Attributes:
        prefix: words before the node's command; the command reads our input and ends with it.
        address: IPv4 address.
        interface: interface that careful uses.
        program: path of careful-p2 on the host; "": the local path.
    """

    prefix: tuple[str, ...]
    address: str
    interface: str = "eth1"
    program: str = ""


def _output(argv: list[str], text: str = "") -> str:
    try:
        process = subprocess.run(
            argv, cwd="/", input=text, capture_output=True, text=True, timeout=60
        )
    except OSError as error:
        raise CarefulError(errno.ENOENT, "it is not installed", argv[0]) from error
    if process.returncode:
        reason = (process.stderr.strip() or "failed").splitlines()[0]
        raise CarefulError(errno.EIO, reason, argv[0])
    return process.stdout


class _Namespace:
    """A network and a mount namespace, held by a process until `with` ends."""

    def __init__(self) -> None:
        argv = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", _HOLD]
        self._process = subprocess.Popen(
            argv,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must reach this program only
        )
        self.pid = self._process.pid
        self.inside = ("nsenter", "--net", "--mount", "--target", str(self.pid), "--")

    def wait(self) -> None:
        assert self._process.stdout
        assert self._process.stderr
        if self._process.stdout.readline() != "ready\n":
            reason = self._process.stderr.read().strip() or "it ended"
            raise CarefulError(errno.EPERM, reason.splitlines()[0], "a network namespace")

    def ip(self, *lines: str) -> None:
        _output([*self.inside, "ip", "-batch", "-"], "\n".join(lines) + "\n")

    def has_links_down(self) -> bool:
        links = json.loads(_output([*self.inside, "ip", "-json", "link"]))
        return any(one["operstate"] in ("DOWN", "LOWERLAYERDOWN") for one in links)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        child.end(self._process)


class NamespaceHosts:
    """Hosts on this machine at one switch. Each is pinned to one CPU; hosts may share CPUs.

    mtu: bytes. Raises CarefulError: namespaces cannot be made here.
    """

    def __init__(self, count: int, mtu: int) -> None:
        if os.geteuid():
            raise CarefulError(errno.EPERM, "needs root, for network namespaces", "bench")
        self._mtu = mtu
        self.hosts: list[Host] = []
        with ExitStack() as stack:
            namespaces = [stack.enter_context(_Namespace()) for _ in range(count + 1)]
            for namespace in namespaces:
                namespace.wait()
            self._join(namespaces[0], namespaces[1:])
            self._wait_until_up(namespaces)
            cpus = sorted(os.sched_getaffinity(0))
            for k, namespace in enumerate(namespaces[1:]):
                pinned = ("taskset", "--cpu-list", str(cpus[k % len(cpus)]))
                self.hosts.append(Host((*namespace.inside, *pinned), f"10.77.0.{k + 1}"))
            self._stack = stack.pop_all()

    def _join(self, switch: _Namespace, hosts: list[_Namespace]) -> None:
        kind = "type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        switch.ip(f"link add br0 mtu {self._mtu} {kind}", "link set br0 up")
        for k, host in enumerate(hosts, 1):
            veth = f"numtxqueues 1 numrxqueues 1 mtu {self._mtu}"
            switch.ip(
                f"link add p{k} {veth} type veth peer name eth1 netns {host.pid} {veth}",
                f"link set p{k} master br0 up",
            )
            queue = f"qdisc replace dev p{k} root pfifo limit {_PORT_FRAMES}"
            _output([*switch.inside, "tc", *queue.split()])
            host.ip(f"address add 10.77.0.{k}/24 dev eth1", "link set eth1 up")

    def _wait_until_up(self, namespaces: list[_Namespace]) -> None:
        """Waits for all links: a veth drops frames until the kernel has seen both ends up."""
        deadline = time.monotonic() + _UP_S
        while any(one.has_links_down() for one in namespaces):
            if time.monotonic() > deadline:
                raise CarefulError(errno.ETIMEDOUT, "its links do not come up", "the switch")
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
