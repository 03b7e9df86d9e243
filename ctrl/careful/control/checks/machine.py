"""Checks what careful needs of a machine and an interface, in the words of `up`.

A check that can make `up` fail calls the function that `up` calls: careful_check() of libcareful,
or a check of daemon.up() before carefuld starts. The other checks only warn.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from careful._abi import error_text, ffi, lib
from careful.address import resolve
from careful.control.carefuld import daemon, needs
from careful.control.checks import option_checks, packet_route
from careful.control.checks.check_result import REINSTALL, Finding, fail, ok, unknown, warn
from careful.control.host import ethtool, firewall, hugepages, links
from careful.control.host.links import Link
from careful.control.instance import instances, maps, records, status
from careful.control.instance.instances import Instance
from careful.control.options import exports
from careful.control.options.up_options import DEFAULTS, UpOptions, flag
from careful.control.tracing import bpf
from careful.errors import LET_IN, CarefulError
from careful.units import shown_bytes as size

#: The first kernel with multi-buffer frames; in older ones a frame must fit one buffer.
_KERNEL_FRAGS = (6, 6)
_MTU_BUFFER = 3826  # fits one AF_XDP buffer on veth: 3840 bytes less Ethernet's 14
_BACKLOG_DEFAULT = 1000
_BUFFER_BYTES = 4096  # XSK_CHUNK_BYTES, xsk.h
_HEADROOM_BYTES = 256  # XDP_PACKET_HEADROOM

#: Names of checks that differ from those of `enum careful_check`.
_NAMES = {"af_xdp": "AF_XDP", "mtu": "MTU", "program": "XDP", "zerocopy": "zero-copy"}
#: Advice for each check.
_ADVICE = {
    **dict.fromkeys(("kernel", "af_xdp"), "boot linux-image-amd64 or linux-image-arm64"),
    "privilege": "docker run --cap-add NAME, or CapabilityBoundingSet= of the unit",
    "bpf": "docker run --security-opt seccomp=unconfined; Podman: as root, without --userns",
    "files": "under systemd: LimitNOFILE=65536, by systemctl edit {unit}",
    "memlock": "ulimit -l unlimited; under systemd: LimitMEMLOCK=infinity, by "
    "systemctl edit {unit}",
    "bpffs": "docker run -v /sys/fs/bpf:/sys/fs/bpf, with bpffs mounted on the machine",
    "run": "docker run --tmpfs /run, or ReadWritePaths=/run of the unit",
    "openat2": "docker run --security-opt seccomp=unconfined, or a newer libseccomp",
    "io_uring": "docker run --security-opt seccomp=unconfined; sysctl kernel.io_uring_disabled=0",
    "options": option_checks.CHANGE,
    "interface": "name an Ethernet interface: ip link lists them",
    "mtu": "ip link set {ifname} mtu 1500",
    "queue": "up --queue, --queues, or ethtool -L {ifname}; ethtool -l {ifname} lists queues",
    "steering": "ethtool -L {ifname} combined 1",
    "port": "up --port, or port in careful.toml, the same at its peers",
    "program": "end what uses it; bpftool net show dev {ifname} names its program",
    "zerocopy": "take require_zerocopy out of careful.toml",
}
#: Advice if control messages do not arrive.
_LET_IN = f"on both hosts {LET_IN}; until then the next loss may end the session"
#: Commands for checks whose advice depends on the errno of careful_check().
_COMMANDS = {
    ("interface", errno.EBUSY): "ip link set {ifname} nomaster",
    ("interface", errno.ENETDOWN): "ip link set {ifname} up",
}
#: Checks that only root can make.
_ROOTS = ("privilege", "bpf", "files", "memlock", "bpffs", "run")
#: Checks that a running instance makes fail: it already owns these.
_OWNED = ("program", "port", "zerocopy")


@dataclass(frozen=True)
class Case:
    """The subject of the checks; `address` resolves the hosts in the options."""

    ifname: str
    instance: Instance
    options: UpOptions = field(default_factory=UpOptions)
    address: Callable[[str], str] = exports.numeric

    @property
    def in_use(self) -> bool:
        return bool(self.instance.pid or instances.owner_without_daemon(self.instance.name))


def _carefuld() -> str:
    program = daemon.executable()
    done = subprocess.run([program, "--version"], cwd="/", capture_output=True, text=True)
    if done.returncode:
        raise CarefulError(errno.ENOEXEC, done.stderr.strip(), str(program))
    return str(program)


def _machine() -> Iterator[Finding]:
    yield option_checks.tried("carefuld", _carefuld, REINSTALL)
    try:
        bpf.library()
        yield ok("bcc", "python3-bpfcc is installed")
    except CarefulError as error:
        text = "not installed: `trace` and `measure clearbox` will not work"
        yield warn("bcc", text, error.reason)


def _library(case: Case) -> Iterator[Finding]:
    skipped = _OWNED if case.in_use else ()
    for name, returned, text in needs.walk(case.ifname, case.instance.name, case.options, skipped):
        code = -returned
        shown = _NAMES.get(name, name)
        if code == errno.EXDEV and shutil.which("ethtool"):
            yield ok(shown, "several queues: `up` steers the port to one")
        elif not code:
            yield ok(shown, text)
        elif code < 0:
            yield warn(shown, text, _ADVICE[name])
        elif code == errno.EAGAIN or (name in _ROOTS and os.geteuid() != 0):
            yield unknown(shown, text)
        else:
            fix = _steering(case.ifname, code) if name == "steering" else ()
            named = {"ifname": case.ifname, "unit": instances.unit("carefuld", case.ifname)}
            advice = _COMMANDS.get((name, code), _ADVICE[name]).format(**named)
            yield fail(shown, text, " ".join(fix) or advice, fix)
        if code == errno.ENODEV:
            return


def _steering(ifname: str, code: int) -> tuple[str, ...]:
    """Returns the command that lets `up` steer the port to its queue; () if none does."""
    if code == errno.EINVAL:  # rules are off
        return "ethtool", "-K", ifname, "ntuple", "on"
    if code != errno.EOPNOTSUPP:
        return ()
    kind = "combined" if ethtool.driver_info(ifname).combined else "rx"
    return "ethtool", "-L", ifname, kind, "1"


def pause(ifname: str, heeds_and_sends: tuple[bool, bool]) -> Finding:
    """Checks link-level flow control: with it, a full queue stalls the sender and drops nothing."""
    if all(heeds_and_sends):
        return ok("pause", "pause frames are obeyed and sent: a full queue holds its sender")
    words = {False: "are neither obeyed nor sent", True: "are obeyed, but not sent"}
    how = "are sent, but not obeyed" if heeds_and_sends[1] else words[heeds_and_sends[0]]
    text = (
        f"pause frames {how}: a full queue drops frames, here or in the switch, and windows shrink"
    )
    fix = ("ethtool", "-A", ifname, "rx", "on", "tx", "on")
    return warn("pause", text, f"{' '.join(fix)}, and flow control in the switch", fix)


def pfc(ifname: str, priorities: frozenset[int]) -> Finding:
    """Checks that priority flow control, which replaces pause frames, covers careful's priority.

    Frames without a VLAN tag have priority 0 (IEEE 802.1Q).
    """
    listed = " ".join(map(str, sorted(priorities)))
    if 0 in priorities:
        return ok("PFC", f"on for priorities {listed}; careful's frames have 0")
    text = f"on for priorities {listed}, and careful's frames have 0: a full queue drops them"
    fix = ("dcb", "pfc", "set", "dev", ifname, "prio-pfc", "0:on")
    return warn("PFC", text, f"{' '.join(fix)}, and the same in the switch", fix)


def ring(ifname: str, size: int, most: int, wanted: int, promised: int = 0) -> Finding:
    """Checks receive descriptors: fewer than receive buffers limit R, and so the windows.

    size: descriptors in use; most: descriptors that the driver allows; wanted: receive buffers that
    `up` would ask for; promised: R of the running carefuld, 0 if none runs.
    """
    if size < promised:
        text = f"{size} receive descriptors, fewer than R = {promised}: bursts can be lost"
        return warn("ring", text, f"carefulctl down {ifname}, then up")
    if size >= min(wanted, most):
        return ok("ring", f"{size} receive descriptors (the driver has at most {most})")
    text = f"{size} receive descriptors of at most {most}: they limit R, although UMEM has {wanted}"
    fix = ("ethtool", "-G", ifname, "rx", str(most))
    return warn("ring", text, " ".join(fix), fix)


def _driver(link: Link, driver: ethtool.DriverInfo, case: Case) -> Iterator[Finding]:
    priorities = ethtool.pfc(link.name)
    if priorities:
        yield pfc(link.name, priorities)
    if driver.pause and not (priorities and 0 in priorities):
        yield pause(link.name, driver.pause)
    if driver.rx_ring and driver.rx_ring_most:
        wanted = case.options.over(DEFAULTS).rx_buffers or 0
        promised = 0
        if case.instance.pid:
            with suppress(CarefulError):
                promised = status.info_of(case.instance).device.receive_buffers
        yield ring(link.name, driver.rx_ring, driver.rx_ring_most, wanted, promised)
    if driver.lro:
        fix = ("ethtool", "-K", link.name, "lro", "off")
        text = "LRO is on, and drivers refuse native XDP with it"
        yield warn("offloads", text, " ".join(fix), fix)
    else:
        yield ok("offloads", "LRO is off")


def _interface(link: Link, case: Case) -> Iterator[Finding]:
    if link.up and not link.carrier:
        advice = "plug in the cable, and bring up the other end: ip link set INTERFACE up"
        yield warn("carrier", f"no link on {link.name}", advice)
    if link.kind == "veth" and link.mtu > _MTU_BUFFER:
        advice = f"ip link set {link.name} mtu {_MTU_BUFFER}: then a frame fills one buffer"
        yield warn("buffers", f"with an MTU of {link.mtu} a frame fills several buffers", advice)
    if links.has_address(link):
        yield ok("address", f"{link.name} has an address")
    elif links.lo_has_address():
        yield ok("address", f"{link.name} has none; hosts can use an address of lo")
    else:
        text = f"{link.name} has no address, or only link-local ones"
        yield warn("address", text, f"ip addr add ADDRESS/PREFIX dev {link.name}")
    if others := links.in_same_subnet(link):
        text = f"{', '.join(others)}: in one subnet with {link.name}, answers ARP for addresses of "
        text += f"{link.name}: frames for {link.name} can arrive there and are lost"
        advice = "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
        yield warn("ARP", text, advice)
    yield from _driver(link, ethtool.driver_info(link.name), case)


def _window(link: Link, options: UpOptions) -> Finding:
    """Checks that W = (R - reserve) / P holds frames of this MTU, with careful_window().

    R is computed from UMEM; the open device can only make R smaller. The frame's cost is that of
    copy mode; zero-copy needs less room in a buffer.
    """
    whole = options.over(DEFAULTS)
    buffers, peers = max((whole.rx_buffers or 0) - (whole.reserve or 0), 0), whole.peers or 1
    cost = 1
    release = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))
    if release >= _KERNEL_FRAGS:
        cost = -(-(link.mtu + records.ETHERNET_BYTES) // (_BUFFER_BYTES - _HEADROOM_BYTES))
    error = ffi.new("struct careful_error *")
    window = lib.careful_window(buffers, lib.CAREFUL_BOUND_UMEM, peers, link.mtu, cost, error)
    if window < 0:
        advice = "up --peers, --rx-buffers, or peers and rx_buffers in careful.toml"
        return fail("window", error_text(error, flag), advice)
    text = f"{window} buffers for each of {peers} peers; a frame of this MTU fills {cost}"
    return ok("window", text)


def _own_program(link: Link, case: Case) -> Iterator[Finding]:
    if not case.in_use:
        return
    is_detached = link.xdp_program is None
    if case.instance.pid:
        with suppress(CarefulError):  # only root may ask
            is_detached = bool(status.info_of(case.instance).statistics.program_detached)
    if is_detached:
        advice = f"carefulctl down {link.name}, then up"
        if not case.instance.pid:
            pid = instances.owner_without_daemon(case.instance.name)
            advice = f"end {instances.process(pid)}, which owns the queue, and start it again"
        yield fail(
            "XDP", f"the XDP program was removed from {link.name}, so no frame arrives", advice
        )
    else:
        yield ok("XDP", f"ours, {link.xdp_mode}")


def _control(link: Link, instance: Instance) -> Iterator[Finding]:
    """Finds peers whose control messages a firewall drops, and peers behind a smaller MTU."""
    if not instance.pid:
        return
    try:
        peers, port = status.peers_at(instance)
    except CarefulError as error:
        yield unknown("control", str(error))
        return
    for line in records.narrow(peers):
        yield warn("path MTU", line, "a larger MTU on that link is faster")
    for peer in peers:
        if not peer.address.startswith("fe80:"):  # link-local: needs no route
            address = resolve(peer.address)
            yield packet_route.check(address, peer.called, port, link.name)
    master = links.master(link)
    unheard = records.unheard(peers, port, master)
    for line in unheard:
        advice = f"ip link set {link.name} nomaster" if master else _LET_IN.format(port=port)
        yield warn("control", line, advice)
    if not unheard:
        yield ok("control", "no peer's control messages are missing")


def _firewall(case: Case) -> Iterator[Finding]:
    port = case.options.over(DEFAULTS).port or 0
    if rule := firewall.drops(port, case.ifname):
        yield warn("firewall", *rule)
    elif not os.geteuid():  # others do not see nft's rules
        yield ok("firewall", f"no known firewall drops UDP port {port}")


def _qdisc(link: Link, case: Case) -> Finding:
    qdisc = links.root_qdisc(link)
    if qdisc is None and link.kind == "veth" and case.in_use:
        text = "none: another program removed the pfifo of `up`, so a full ring loses frames"
        return warn("qdisc", text, f"carefulctl down {link.name}, then up")
    if qdisc is None and link.kind == "veth":
        return ok("qdisc", "none; `up` adds a pfifo, so that a full ring loses nothing")
    used = case.in_use or instances.uses(link)  # then the pfifo is not a leftover
    if qdisc is not None and qdisc.is_ours and not used:
        advice = f"carefulctl down {link.name} removes it"
        return warn("qdisc", f"{qdisc.kind}, left by a carefuld that was killed", advice)
    return ok("qdisc", qdisc.kind if qdisc else "none")


def _rps(link: Link, xdp: str | None) -> Finding:
    text = links.rps_text(link.name)
    if not text or link.xdp_mode == "native":
        return ok("RPS", "frames of a queue stay in order")
    finding = fail if "generic" in (xdp, link.xdp_mode) else warn
    return finding("RPS", text, links.rps_advice(link.name))


def _hugepages(options: UpOptions) -> Finding:
    whole = options.over(DEFAULTS)
    nbytes = ((whole.rx_buffers or 1) + (whole.tx_buffers or 1)) * _BUFFER_BYTES
    if kind := hugepages.kind(nbytes):
        return ok("hugepages", f"{kind}, for a UMEM of {size(nbytes)}")
    text = f"none for a UMEM of {size(nbytes)}: small pages are slower"
    return warn("hugepages", text, f"sysctl vm.nr_hugepages={hugepages.count(nbytes)}")


def _backlog() -> Finding:
    path = Path("/proc/sys/net/core/netdev_max_backlog")
    try:
        backlog = int(path.read_text())
    except OSError:
        text = f"cannot be seen in this network namespace; assumed to be {_BACKLOG_DEFAULT}"
        return unknown("backlog", text)
    return ok("backlog", f"{backlog} frames: bounds R in generic mode")


def _instance(case: Case) -> Finding:
    instance = case.instance
    if instance.pid:
        where = f" on {instance.ifname}" if instance.ifname else ""
        return ok("instance", f"{instance.name} runs{where} ({instance.carefuld})")
    if reason := instances.starting(instance):
        advice = f"wait for it, or: systemctl stop {instances.unit('carefuld', instance.name)}"
        return fail("instance", f"{instance.name}: {reason}", advice)
    if pid := instances.owner_without_daemon(instance.name):
        owner = instances.process(pid)
        text = f"{instance.name} belongs to {owner}, a program with a queue of its own"
        return ok("instance", text)
    try:
        pins = maps.pins(instance.name).exists()
    except PermissionError:
        return unknown("instance", "only root can see whether pins are left")
    if pins or instance.directory.exists():
        advice = f"the next `up` clears them, or: carefulctl down {case.ifname}"
        return warn("instance", "a killed carefuld left pins or files behind", advice)
    return ok("instance", f"{instance.name} is not up, and left nothing behind")


def look(case: Case) -> list[Finding]:
    """Runs all checks; changes nothing."""
    findings = [*_machine(), *_library(case)]
    try:
        link = links.find(case.ifname)
    except CarefulError:
        pass  # reported above
    else:
        findings += [*_interface(link, case), *_own_program(link, case), _qdisc(link, case)]
        findings.append(_rps(link, case.options.xdp))
        findings.append(_window(link, case.options))
        findings += [*_control(link, case.instance), *_firewall(case)]
    findings += option_checks.named(case.options, case.address)
    return [*findings, _hugepages(case.options), _backlog(), _instance(case)]
