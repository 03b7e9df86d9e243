"""Namespaces, veth pairs and the switch of a lab without emulated links."""

from __future__ import annotations

import json
import os
import time

from laboratory.state import NETNS, Lab, LabError, command, must

#: Frames in a switch port's queue: more than the sum of all windows towards a host.
PORT_QUEUE_FRAMES = 8192


def ip(*batch: str, namespace: str | None = None) -> None:
    """Runs lines of `ip -batch`, in a namespace or outside."""
    where = ["-netns", namespace] if namespace else []
    must("ip", *where, "-batch", "-", text="\n".join(batch) + "\n")


def set_sysctls(namespace: str, values: dict[str, int]) -> None:
    script = "\n".join(f"echo {value} > /proc/sys/net/{key}" for key, value in values.items())
    must("nsenter", f"--net={NETNS / namespace}", "sh", "-e", "-c", script)


def make_namespace(namespace: str, ipv6: bool) -> None:
    """Makes a namespace that sends nothing by itself."""
    ip(f"netns add {namespace}")
    quiet = {"accept_ra": 0, "router_solicitations": 0, "accept_dad": 0, "autoconf": 0}
    quiet["disable_ipv6"] = int(not ipv6)
    set_sysctls(namespace, {f"ipv6/conf/default/{key}": value for key, value in quiet.items()})
    ip("link set lo up", namespace=namespace)


def configure_host(lab: Lab, k: int) -> None:
    ip(
        f"address add 10.77.0.{k}/24 dev eth1",
        f"address add fd77::{k:x}/64 dev eth1 nodad",
        "link set eth1 up",
        namespace=lab.host(k),
    )


def end_of_link(k: int, lab: Lab, device: str, namespace: str) -> str:
    """Returns one end of a veth pair for `ip link add`: its queues, and a MAC that names the host.

    All ends have different indices: if both ends of a pair have the same, the kernel handles a new
    carrier only once a second.
    """
    queues = lab.queues[k - 1] if lab.queues else 1
    role = 0 if device == "eth1" else 1
    return (
        f"{device} index {100 * (role + 1) + k} netns {namespace} "
        f"address 02:77:00:00:{role:02x}:{k:02x} mtu {lab.mtu} "
        f"numtxqueues {queues} numrxqueues {queues}"
    )


def join_two(lab: Lab) -> None:
    ends = [end_of_link(k, lab, "eth1", lab.host(k)) for k in (1, 2)]
    ip(f"link add {ends[0]} type veth peer name {ends[1]}")


def make_switch(lab: Lab) -> None:
    make_namespace(lab.switch, ipv6=False)
    ip(
        f"link add br0 mtu {lab.mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        "link set br0 up",
        namespace=lab.switch,
    )


def keep_order(lab: Lab, k: int) -> None:
    """Lets one CPU handle a host's frames, in the order of their arrival.

    With generic XDP a veth's frame waits at the CPU that delivered it. Several CPUs deliver frames
    of a switch port's queue, so these would overtake each other.
    """
    cpus = f"{1 << (k - 1) % (os.cpu_count() or 1):x}"
    setting = "/sys/class/net/eth1/queues/rx-0/rps_cpus"
    must("ip", "netns", "exec", lab.host(k), "sh", "-c", f"echo {cpus} > {setting}")


def join_by_switch(lab: Lab) -> None:
    make_switch(lab)
    for k in range(1, lab.hosts + 1):
        host = end_of_link(k, lab, "eth1", lab.host(k))
        port = end_of_link(k, lab, f"p{k}", lab.switch)
        ip(f"link add {host} type veth peer name {port}")
        ip(f"link set p{k} master br0", f"link set p{k} up", namespace=lab.switch)
        queue = f"qdisc replace dev p{k} root pfifo limit {PORT_QUEUE_FRAMES}"
        must("tc", "-netns", lab.switch, *queue.split())
        keep_order(lab, k)


def no_offloads(namespace: str, device: str) -> None:
    """Turns off offloads, like on a link: no large segments, complete checksums."""
    off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"]
    must("nsenter", f"--net={NETNS / namespace}", "ethtool", "-K", device, *off)


def wait_until_up(lab: Lab) -> None:
    """Waits until every link carries frames.

    The veth end that was up first drops frames until the kernel's link watch reports "UP", which a
    busy machine delays.
    """
    deadline = time.monotonic() + 10
    for namespace in lab.namespaces:
        while True:
            links = json.loads(command("ip", "-netns", namespace, "-json", "link").stdout)
            down = [
                one["ifname"] for one in links if one["operstate"] in ("DOWN", "LOWERLAYERDOWN")
            ]
            if not down:
                break
            if time.monotonic() > deadline:
                raise LabError(f"{down[0]} in {namespace} does not come up")
            time.sleep(0.005)
