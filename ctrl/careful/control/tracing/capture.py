"""Captures the frames of an instance: those received, with XDP's verdict, and those sent.

tcpdump does not see AF_XDP frames. XDP copies each frame for our port into the ring buffer in
the captures map. A probe at the device adds the frames that we send, and a packet socket adds the
control messages that the kernel sends. Owns the ring, the attached programs, and the lock that
allows one capture per instance. render/tracing/pcapng.py writes the file.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from contextlib import ExitStack, suppress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from careful._abi import enum_names, ffi, layout, lib
from careful.control.instance import instances, maps
from careful.control.instance.instances import Instance
from careful.control.tracing import bpf, trace_targets
from careful.control.tracing.tracer import Target, ended, pidfd
from careful.errors import CarefulError, about

#: Size of the ring: 8,192 whole frames that have not been read, or 419,000 frames of 128 bytes.
RING_BYTES, SHORT_RING_BYTES = 32 << 20, int(lib.CAREFUL_CAUGHT_SHORT_RING)
#: Most bytes that are captured of each frame.
SNAP_BYTES, SHORT_BYTES = int(lib.CAREFUL_CAUGHT_BYTES), int(lib.CAREFUL_CAUGHT_SHORT_BYTES)
LOCK = "capture.lock"
PROBE = "frameTx"

_TIME_NAMESPACE = Path("/proc/self/timens_offsets")

_OFFSETS = {one.name: one.offset for one in layout("careful_caught")}
_HEAD = struct.Struct("=QIIII")
_PROGRAM = """
#include <uapi/linux/ptrace.h>

BPF_RINGBUF_OUTPUT(frames, {pages});
BPF_ARRAY(lost, u64, 1);

int on_frame(struct pt_regs *ctx)
{{
	struct {{ u64 at; u32 part_bytes, frame_bytes; }} frame = {{}};
	char *record;
	u32 bytes;

	bpf_probe_read_user(&frame, sizeof(frame), (void *)PT_REGS_PARM1(ctx));
	bytes = frame.part_bytes < {snap} ? frame.part_bytes : {snap};
	record = frames.ringbuf_reserve({size});
	if (!record) {{
		lost.increment(0);
		return 0;
	}}
	if (bpf_probe_read_user(record + {data}, bytes, (void *)frame.at))
		bytes = 0;
	*(u64 *)(record + {time_ns}) = bpf_ktime_get_ns();
	*(u32 *)(record + {bytes}) = frame.frame_bytes;
	*(u32 *)(record + {caught_bytes}) = bytes;
	*(u32 *)(record + {verdict}) = {sent};
	frames.ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}}
"""


def _clock_ahead_ns() -> int:
    """Returns our monotonic clock minus BPF's, ns: the clocks differ in a time namespace."""
    with suppress(OSError):
        for line in _TIME_NAMESPACE.read_text().splitlines():
            name, seconds, ns = line.split()
            if name == "monotonic":
                return int(seconds) * 10**9 + int(ns)
    return 0


class Frame(NamedTuple):
    """A captured frame.

    Attributes:
        time_ns: time since the epoch.
        data: first bytes of the frame.
        frame_bytes: length of the whole frame.
        sent: True if this host sent the frame.
        verdict: XDP's verdict, a counter of `status` ("admitted", "drop_seq"); "" for a sent frame.
    """

    time_ns: int
    data: bytes
    frame_bytes: int
    sent: bool
    verdict: str = ""


def _program(ring_bytes: int, snap_bytes: int) -> str:
    return _PROGRAM.format(
        pages=ring_bytes // os.sysconf("SC_PAGESIZE"),
        snap=snap_bytes,
        size=_HEAD.size + snap_bytes,
        sent=int(lib.CAREFUL_XDP_COUNTERS),
        **_OFFSETS,
    )


#: Opcodes of classic BPF: loads of 1, 2 and 4 bytes, a load behind the IPv4 header, and jumps.
_LDB, _LDH, _LD, _LDH_X, _IHL, _JEQ, _JSET, _RET = 0x30, 0x28, 0x20, 0x48, 0xB1, 0x15, 0x45, 0x06
_PKTTYPE = 0xFFFFF004  # SKF_AD_OFF + SKF_AD_PKTTYPE
_ETH_P_ALL, _SO_ATTACH_FILTER, _SO_TIMESTAMPNS = 3, 26, 35
#: A timespec, which SO_TIMESTAMPNS adds to each packet.
_STAMP = struct.Struct("@qq")
_STAMP_SPACE = socket.CMSG_SPACE(_STAMP.size)


def _filter(port: int) -> list[tuple[int, int, int, int]]:
    """Returns a classic BPF program that matches outgoing UDP to a port, over IPv4 or IPv6.

    An instruction has an opcode, the jumps if true and if false, and an operand.
    """
    return [
        (_LD, 0, 0, _PKTTYPE),
        (_JEQ, 0, 15, socket.PACKET_OUTGOING),
        (_LDH, 0, 0, 12),
        (_JEQ, 0, 7, 0x0800),
        (_LDB, 0, 0, 23),
        (_JEQ, 0, 11, socket.IPPROTO_UDP),
        (_LDH, 0, 0, 20),
        (_JSET, 9, 0, 0x1FFF),  # not the first fragment
        (_IHL, 0, 0, 14),
        (_LDH_X, 0, 0, 16),
        (_JEQ, 5, 6, port),
        (_JEQ, 0, 5, 0x86DD),
        (_LDB, 0, 0, 20),
        (_JEQ, 0, 3, socket.IPPROTO_UDP),
        (_LDH, 0, 0, 56),
        (_JEQ, 0, 1, port),
        (_RET, 0, 0, 1 << 16),
        (_RET, 0, 0, 0),
    ]


def _outgoing(ifname: str, port: int) -> socket.socket:
    """Opens a packet socket that sees the control messages that the kernel sends for us."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in _filter(port))
    memory = ffi.from_buffer(code)
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        program = struct.pack("@HP", len(code) // 8, int(ffi.cast("uintptr_t", memory)))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        opened.bind((ifname, _ETH_P_ALL))
        opened.setblocking(False)
    except BaseException:
        opened.close()
        raise
    return opened


class Capture:
    """Captures frames while the context is entered.

    Args:
        instance: an instance in our network namespace.
        snap_bytes: bytes captured of each frame; with SHORT_BYTES or less, 50 times as many frames
            fit the ring.

    Raises CarefulError: on entering: not permitted, bcc is missing, another capture is running, or
    carefuld was built without probes.
    """

    def __init__(self, instance: Instance, port: int, snap_bytes: int = SNAP_BYTES) -> None:
        self.instance, self._port, self._snap_bytes = instance, port, snap_bytes
        names = enum_names("careful_xdp_counter", "CAREFUL_XDP_")
        self._verdicts = {**names, int(lib.CAREFUL_XDP_COUNTERS): ""}
        self._received = 0
        self._open = ExitStack()

    def __enter__(self) -> Capture:
        target = self._target = trace_targets.target(self.instance.ifname, self.instance.name)
        what = f"instance {target.name}"
        with self._open as stack:
            stack.enter_context(instances.holding(self.instance, LOCK, "is captured"))
            self._pidfd = pidfd(target)
            stack.callback(os.close, self._pidfd)
            whole = self._snap_bytes > SHORT_BYTES
            ring_bytes = RING_BYTES if whole else SHORT_RING_BYTES
            snap_bytes = SNAP_BYTES if whole else SHORT_BYTES
            text = _program(ring_bytes, snap_bytes)
            self._program = stack.enter_context(bpf.Program(text))
            self._ring = bpf.Ring(
                self._program.descriptor("frames"), ring_bytes, _HEAD.size + snap_bytes
            )
            stack.callback(self._ring.close)
            with about(self.instance.ifname):
                self._socket = stack.enter_context(_outgoing(self.instance.ifname, self._port))
            self._listen(stack, target, what)
            self._open = stack.pop_all()
        return self

    def _listen(self, stack: ExitStack, target: Target, what: str) -> None:
        probe = target.probes.get(PROBE)
        if probe is None:
            text = f"has no probe {PROBE}: it belongs to another build; restart it"
            raise CarefulError(errno.ENOTSUP, text, what)
        path = maps.pins(self.instance.name) / "captures"
        captures = stack.enter_context(maps.PinnedMap(path, 4, 4))
        captures.update(0, struct.pack("=i", self._program.descriptor("frames")))
        stack.callback(captures.delete, 0)
        self._since_ns = time.time_ns() - time.monotonic_ns() + _clock_ahead_ns()
        self._counted = self._count()
        event = self._program.attach_uprobe(
            "on_frame", target.path, probe.offset, target.pid, probe.semaphore_offset
        )
        stack.callback(self._program.detach, event)

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _count(self) -> int:
        counters = maps.xdp_counters(self.instance.name)
        return sum(counters.values()) - counters["pass_other"]

    def collect(self, seconds: float) -> list[Frame]:
        """Waits, and returns the frames since the last call, sorted by time."""
        time.sleep(seconds)
        frames = self._frames(self._ring.take())
        with suppress(BlockingIOError):
            while True:
                data, ((_, _, stamp),), *_ = self._socket.recvmsg(1 << 16, _STAMP_SPACE)
                sent_s, sent_ns = _STAMP.unpack(stamp)
                time_ns = sent_s * 1_000_000_000 + sent_ns
                frames.append(Frame(time_ns, data[: self._snap_bytes], len(data), True))
        frames.sort(key=itemgetter(0))
        return frames

    def ended(self) -> CarefulError | None:
        """Returns an error if the instance's process has ended; None while it runs."""
        is_over = select.select([self._pidfd], [], [], 0)[0]
        return ended(self._target, "captured") if is_over else None

    def _frames(self, records: list[bytes]) -> list[Frame]:
        since_ns, snap, verdicts = self._since_ns, self._snap_bytes, self._verdicts
        frames = []
        for raw in records:
            time_ns, frame_bytes, caught_bytes, verdict, _ = _HEAD.unpack_from(raw)
            data = raw[_HEAD.size : _HEAD.size + min(caught_bytes, snap)]
            name = verdicts[verdict]
            frames.append(Frame(since_ns + time_ns, data, frame_bytes, not name, name))
        self._received += sum(not frame.sent for frame in frames)
        return frames

    @property
    def lost_count(self) -> int:
        """Returns the number of frames that found the ring full.

        Call this last: the call discards frames that were not collected.
        """
        seen = self._count() - self._counted
        self.collect(0)  # frees the ring's space
        return self._program.number("lost") + max(seen - self._received, 0)
