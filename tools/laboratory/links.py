"""Emulated links: a chain of routers between two hosts, or a link for each host of a switch.

Each link is a process (tools/hop) in the lab's namespace `wire`, and writes a report.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laboratory import chain
from laboratory.network import (
    end_of_link,
    ip,
    make_namespace,
    make_switch,
    no_offloads,
    set_sysctls,
)
from laboratory.state import NETNS, STATE, Lab, LabError


@dataclass(frozen=True)
class End:
    """An end of a chain's link: namespace, interface, IPv4 and IPv6 address."""

    namespace: str
    device: str
    addresses: tuple[str, str]


def chain_end(lab: Lab, k: int, right: bool) -> End:
    """Returns the left or right end of link k."""
    if right and k == len(lab.hops):
        return End(lab.host(2), "eth1", ("10.77.0.2", "fd77::2"))
    if not right and k == 1:
        return End(lab.host(1), "eth1", ("10.77.0.1", "fd77::1"))
    owner, side = lab.router(k if right else k - 1), 2 if right else 1
    addresses = (f"10.77.{100 + k}.{side}", f"fd77:{100 + k:x}::{side}")
    return End(owner, "left" if right else "right", addresses)


def pairs(lab: Lab, one: tuple[str, str], other: tuple[str, str]) -> list[tuple[str, str]]:
    """Returns the pairs of two ends' addresses, one for each family of the lab."""
    return list(zip(one, other, strict=True))[: 2 if lab.ipv6 else 1]


def prefix(address: str) -> str:
    """Returns the prefix of a single address."""
    return f"{address}/{128 if ':' in address else 32}"


def join_by_link(lab: Lab, k: int) -> None:
    """Makes the two ends of link k, joined to the wire, with permanent neighbour entries."""
    ends = [chain_end(lab, k, right) for right in (False, True)]
    macs = [f"02:77:00:01:{k:02x}:{side:02x}" for side in (1, 2)]
    for side, end in enumerate(ends):
        ip(
            f"link add {end.device} netns {end.namespace} address {macs[side]} mtu {lab.mtu} "
            f"numtxqueues 1 numrxqueues 1 type veth peer name w{k}{'ab'[side]} "
            f"index {100 + 2 * k + side} netns {lab.wire} mtu {lab.mtu} numtxqueues 1 numrxqueues 1"
        )
        ip(f"link set w{k}{'ab'[side]} up", namespace=lab.wire)
        ip(f"link set {end.device} up", namespace=end.namespace)
        for own, far in pairs(lab, end.addresses, ends[1 - side].addresses):
            quiet = " nodad" if ":" in own else ""
            ip(
                f"address add {prefix(own)} dev {end.device}{quiet}",
                f"neigh replace {far} lladdr {macs[1 - side]} dev {end.device} nud permanent",
                f"route add {prefix(far)} dev {end.device} src {own}",
                namespace=end.namespace,
            )
        no_offloads(end.namespace, end.device)


def join_by_star(lab: Lab) -> None:
    """Joins each host to a switch by its own link, with permanent neighbour entries."""
    make_namespace(lab.wire, ipv6=False)
    make_switch(lab)
    families = 2 if lab.ipv6 else 1
    known = [(f"10.77.0.{k}", f"fd77::{k:x}")[:families] for k in range(lab.hosts + 1)]
    for k in range(1, lab.hosts + 1):
        ends = (("eth1", lab.host(k), "a"), (f"p{k}", lab.switch, "b"))
        for device, namespace, side in ends:
            wire = f"w{k}{side} netns {lab.wire} mtu {lab.mtu} numtxqueues 1 numrxqueues 1"
            ip(f"link add {end_of_link(k, lab, device, namespace)} type veth peer name {wire}")
            ip(f"link set w{k}{side} up", namespace=lab.wire)
            no_offloads(namespace, device)
        ip(f"link set p{k} master br0", f"link set p{k} up", namespace=lab.switch)
        others = (other for other in range(1, lab.hosts + 1) if other != k)
        ip(
            f"address add 10.77.0.{k}/24 dev eth1",
            *([f"address add fd77::{k:x}/64 dev eth1 nodad"] if lab.ipv6 else []),
            "link set eth1 up",
            *(
                f"neigh replace {address} lladdr 02:77:00:00:00:{other:02x} dev eth1 nud permanent"
                for other in others
                for address in known[other]
            ),
            namespace=lab.host(k),
        )
    start_links(lab)


#: Settings of routers, which forward, and of all nodes, which answer every probe.
ROUTER = {"ipv4/ip_forward": 1, "ipv6/conf/all/forwarding": 1}
ANSWERS = {"ipv4/icmp_ratelimit": 0, "ipv4/icmp_ratemask": 0, "ipv6/icmp/ratelimit": 0}


def route_chain(lab: Lab) -> None:
    """Sets the routes of a chain, and routers that answer every probe."""
    for k in range(1, len(lab.hops)):
        set_sysctls(lab.router(k), ROUTER | ANSWERS)
    for k in (1, 2):
        set_sysctls(lab.host(k), ANSWERS)
    nodes = [lab.host(1), *(lab.router(k) for k in range(1, len(lab.hops))), lab.host(2)]
    for at, namespace in enumerate(nodes):
        routes = []
        for k in range(1, len(lab.hops) + 1):
            for right in (False, True):
                node = k if right else k - 1  # the index in `nodes` of its owner
                if node == at or (abs(node - at) == 1 and k == max(node, at)):
                    continue  # its own address, or its neighbour's
                link = at + 1 if node > at else at
                via, own = chain_end(lab, link, node > at), chain_end(lab, link, node < at)
                targets = chain_end(lab, k, right).addresses
                routes += [
                    f"route add {prefix(target)} via {gateway} dev {own.device} onlink"
                    for target, gateway in pairs(lab, targets, via.addresses)
                ]
        ip(*routes, namespace=namespace)


def start_links(lab: Lab) -> None:
    """Starts a process for each emulated link, and waits until all are ready."""
    program = str(chain.emulator())
    folder = STATE / lab.name
    inside = ["nsenter", f"--net={NETNS / lab.wire}", "--"]
    for k, hop in enumerate(lab.links, 1):
        report, log = folder / f"link{k}.json", folder / f"link{k}.log"
        report.unlink(missing_ok=True)
        ends = ["--ends", f"w{k}a,w{k}b", "--report", str(report)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*inside, program, *ends, *hop.argv(lab.charge)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        wait_for_report(report, 0, process)


def wait_for_report(
    report: Path, newer_than: int, process: subprocess.Popen[bytes] | None = None
) -> dict[str, Any]:
    """Waits for a link's report with a greater number."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(report.read_text())
            if found["report"] > newer_than:
                return found
        if process and process.poll() is not None:
            log = report.with_suffix(".log").read_text().strip()
            output = log or f"status {process.returncode}"
            raise LabError(f"{report.stem}: the emulator ended: {output.splitlines()[-1]}")
        time.sleep(0.005)
    raise LabError(f"{report.stem}: the emulator does not answer; `tools/lab up` repairs it")


def join_by_chain(lab: Lab) -> None:
    make_namespace(lab.wire, ipv6=False)
    for k in range(1, len(lab.hops)):
        make_namespace(lab.router(k), ipv6=lab.ipv6)
    for k in range(1, len(lab.hops) + 1):
        join_by_link(lab, k)
    route_chain(lab)
    start_links(lab)
