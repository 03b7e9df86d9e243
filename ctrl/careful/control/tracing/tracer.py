"""Live records of the datapath's stages: probes of carefuld, tracepoints of the kernel.

Owns the attached programs, which the kernel detaches if our process dies.
measure/inside/stages.py interprets the records.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from careful._abi import layout, lib, sizeof
from careful.closing import Closing
from careful.control.tracing import bpf, sdt
from careful.errors import CarefulError, from_os

#: Stage -> its probe; netRx belongs to the kernel and has tracepoints.
PROBES = {
    lib.CAREFUL_STAGE_HOST_TX: "hostTx",
    lib.CAREFUL_STAGE_NET_TX: "netTx",
    lib.CAREFUL_STAGE_HOST_RX: "hostRx",
    lib.CAREFUL_STAGE_STORE: "store",
}

#: `struct careful_trace`, as the C compiler laid it out.
RECORD = np.dtype([(one.name, f"u{one.item_bytes}") for one in layout("careful_trace")])
Records = npt.NDArray[np.void]

#: Size of the buffer of unread records, bytes.
_BUFFER_BYTES = 4 << 20
_XSKMAP = 17  # enum bpf_map_type
_NET_RX = 3  # the softirq

_PROGRAM = """
#include <uapi/linux/ptrace.h>

BPF_RINGBUF_OUTPUT(records, {pages});
BPF_ARRAY(lost, u64, 1);
BPF_PERCPU_ARRAY(begun, u64, 1);
BPF_HASH(owners, u32, u32, 64);

static void *reserve(void)
{{
	void *record = records.ringbuf_reserve({bytes});
	if (!record)
		lost.increment(0);
	return record;
}}

static int stage(struct pt_regs *ctx, u32 owner)
{{
	char *record = reserve();
	if (!record)
		return 0;
	bpf_probe_read_user(record, {bytes}, (void *)PT_REGS_PARM1(ctx));
	*(u32 *)(record + {thread}) = bpf_get_current_pid_tgid();
	*(u32 *)(record + {owner}) = owner;
	records.ringbuf_submit(record, 0);
	return 0;
}}

/* netRx of a frame begins with the softirq, or at the end of the frame before. */
int on_softirq(struct bpf_raw_tracepoint_args *ctx)
{{
	int zero = 0;
	u64 *since = begun.lookup(&zero);
	if (since && ctx->args[0] == {net_rx})
		*since = bpf_ktime_get_ns();
	return 0;
}}

int on_softirq_end(struct bpf_raw_tracepoint_args *ctx)
{{
	int zero = 0;
	u64 *since = begun.lookup(&zero);
	if (since && ctx->args[0] == {net_rx})
		*since = 0;
	return 0;
}}

int on_redirect(struct bpf_raw_tracepoint_args *ctx)
{{
	u64 now = bpf_ktime_get_ns();
	u32 map = ctx->args[5], *owner = owners.lookup(&map);
	int zero = 0;
	u64 *since = begun.lookup(&zero);
	char *record;
	if (!owner || !since || !*since || (int)ctx->args[3])
		return 0;
	record = reserve();
	if (!record)
		return 0;
	__builtin_memset(record, 0, {bytes});
	*(u64 *)(record + {begin_ns}) = *since;
	*(u64 *)(record + {end_ns}) = now;
	*(u32 *)(record + {stage}) = {stage_net_rx};
	*(u32 *)(record + {frames}) = 1;
	*(u32 *)(record + {thread}) = bpf_get_current_pid_tgid();
	*(u32 *)(record + {owner}) = *owner;
	records.ringbuf_submit(record, 0);
	*since = bpf_ktime_get_ns();
	return 0;
}}
"""
_STAGE_OF_OWNER = "int on_stage_{n}(struct pt_regs *ctx)\n{{\n\treturn stage(ctx, {n});\n}}\n"
_TRACEPOINTS = (
    ("on_softirq", "softirq_entry"),
    ("on_softirq_end", "softirq_exit"),
    ("on_redirect", "xdp_redirect"),
)


def program(owners: int) -> str:
    """Returns the C source for bcc, for this many instances."""
    text = _PROGRAM.format(
        pages=_BUFFER_BYTES // os.sysconf("SC_PAGESIZE"),
        bytes=sizeof("careful_trace"),
        net_rx=_NET_RX,
        stage_net_rx=lib.CAREFUL_STAGE_NET_RX,
        **{field.name: field.offset for field in layout("careful_trace") if field.name in _OFFSETS},
    )
    return text + "".join(_STAGE_OF_OWNER.format(n=n) for n in range(owners))


_OFFSETS = ("begin_ns", "end_ns", "stage", "frames", "thread", "owner")


@dataclass
class Target:
    """A process with an instance, and its probes.

    pid: the process that owns its queue.
    """

    name: str
    pid: int
    path: str = field(init=False)
    probes: dict[str, sdt.Probe] = field(init=False)
    xskmaps: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.path, self.probes = sdt.of_process(self.pid)
        self.xskmaps = _xskmaps(self.pid)


def _xskmaps(pid: int) -> list[int]:
    map_ids = set()
    try:
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(FileNotFoundError):
                pairs = (line.split(":", 1) for line in entry.read_text().splitlines())
                info = {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
                if info.get("map_type") == str(_XSKMAP):
                    map_ids.add(int(info["map_id"]))
    except FileNotFoundError:
        raise CarefulError(errno.ESRCH, "the process has ended", f"process {pid}") from None
    except OSError as error:
        raise from_os(error, f"process {pid}") from None
    return sorted(map_ids)


class Tracer(Closing):
    """Listens to stages of instances; attaches nothing before `listen`.

    targets: the instances; a record's owner is an index of this list. Raises CarefulError: not
    permitted, bcc is missing, or a process has ended.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = list(targets)
        self._program = bpf.Program(program(len(self.targets)))
        self._events: dict[tuple[int, int], list[int]] = {}
        self._raw: list[bytes] = []
        self._pidfds: dict[int, Target] = {}
        try:
            for number, target in enumerate(self.targets):
                for map_id in target.xskmaps:
                    self._program.put("owners", map_id, number)
            self._program.open_ring("records", self._raw.append)
            for target in self.targets:
                self._pidfds[pidfd(target)] = target
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.listen(())
        for fd in self._pidfds:
            os.close(fd)
        self._pidfds.clear()
        self._program.close()

    def listen(self, stages: Sequence[int]) -> None:
        """Listens to these stages of all targets, and to no others.

        Raises CarefulError if a process has ended or the kernel refuses.
        """
        wanted = {
            (stage, owner)
            for stage in stages
            for owner in range(len(self.targets) if stage in PROBES else 1)
        }
        for key in set(self._events) - wanted:
            for event in self._events.pop(key):
                self._program.detach(event)
        for stage, owner in sorted(wanted - set(self._events)):
            events = self._events.setdefault((stage, owner), [])
            if stage in PROBES:
                events.append(self._uprobe(stage, owner))
                continue
            for function, tracepoint in _TRACEPOINTS:
                events.append(self._program.attach_tracepoint(function, tracepoint))

    def _uprobe(self, stage: int, number: int) -> int:
        target = self.targets[number]
        if PROBES[stage] not in target.probes:
            text = f"has no probe {PROBES[stage]}: it belongs to another build; restart it"
            raise CarefulError(errno.ENOTSUP, text, f"instance {target.name}")
        probe = target.probes[PROBES[stage]]
        return self._program.attach_uprobe(
            f"on_stage_{number}", target.path, probe.offset, target.pid, probe.semaphore_offset
        )

    def collect(self, seconds: float) -> None:
        """Collects records for a time.

        Raises CarefulError if an instance's process ended; its records are kept.
        """
        self._program.poll(max(int(seconds * 1e3), 0))
        poller = select.poll()
        for fd in self._pidfds:
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(0):
            raise ended(self._pidfds[fd], "traced")

    def take(self) -> Records:
        """Returns the records since the last `take`, of dtype RECORD, sorted by their ends."""
        records = np.frombuffer(b"".join(self._raw), dtype=RECORD)
        self._raw.clear()
        return records[np.argsort(records["end_ns"], kind="stable")]

    @property
    def lost_count(self) -> int:
        """Returns the number of records, since the start, that did not fit."""
        return self._program.number("lost")


def ended(target: Target, what: str) -> CarefulError:
    """Returns the error that a target's process has ended; what: "traced" or "captured"."""
    text = f"its process {target.pid} ended while it was {what}"
    return CarefulError(errno.ESRCH, text, f"instance {target.name}")


def pidfd(target: Target) -> int:
    """Returns a descriptor that becomes readable when the process ends.

    Raises CarefulError if the process has ended.
    """
    try:
        return os.pidfd_open(target.pid)
    except ProcessLookupError:
        raise CarefulError(errno.ESRCH, "the process has ended", f"process {target.pid}") from None
