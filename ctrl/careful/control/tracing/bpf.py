"""The only module that imports bcc: compiles and attaches tracing programs.

Programs are compiled against a dozen small headers of our own, which exist while the compiler runs,
so no kernel headers are needed.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from careful.closing import Closing
from careful.errors import CarefulError

_MISSING = (
    "needs Debian's package python3-bpfcc, seen by this Python: apt-get install "
    "python3-bpfcc, and a virtual environment made with --system-site-packages"
)

#: The kernel definitions that bcc's own headers need. {page} is PAGE_SIZE.
_HEADERS = {
    "linux/kconfig.h": "#define CONFIG_BPF_SYSCALL 1\n",
    "linux/types.h": """#pragma once
typedef signed char __s8, s8;
typedef unsigned char __u8, u8;
typedef short __s16, s16;
typedef unsigned short __u16, u16, __be16, __le16;
typedef int __s32, s32, pid_t;
typedef unsigned int __u32, u32, __be32, __wsum;
typedef long long __s64, s64;
typedef unsigned long long __u64, u64, __be64;
typedef unsigned long size_t, uintptr_t;
typedef _Bool bool;
#define __aligned_u64 __u64 __attribute__((aligned(8)))
""",
    "linux/version.h": """#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#undef LINUX_VERSION_CODE
#define LINUX_VERSION_CODE KERNEL_VERSION(6, 1, 0)
""",
    "linux/bpf_common.h": "",
    "linux/log2.h": "",
    "asm/page.h": "#define PAGE_SIZE {page}\n",
    "uapi/linux/bpf.h": "#include <bcc/bpf.h>\n",
    "uapi/linux/if_ether.h": "",
    "uapi/linux/if_packet.h": "",
    "uapi/linux/ptrace.h": """#pragma once
struct pt_regs {
#if defined(__aarch64__)
	unsigned long regs[31], sp, pc, pstate;
#else
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax,
		ip, cs, flags, sp, ss;
#endif
};
""",
}


@cache
def library() -> ctypes.CDLL:
    """Returns libbcc with the types of the functions that we call; errno is kept.

    Raises CarefulError if bcc is not installed or this Python cannot import bcc.
    """
    try:
        from bcc import libbcc

        cdll = ctypes.CDLL(libbcc.lib._name, use_errno=True)
        number, text = ctypes.c_int, ctypes.c_char_p
        # program's descriptor, entry or return, event's name, file, offset in it, pid, semaphore
        cdll.bpf_attach_uprobe.argtypes = [
            *(number, number, text, text),
            *(ctypes.c_uint64, number, ctypes.c_uint32),
        ]
        cdll.bpf_attach_raw_tracepoint.argtypes = [number, text]
    except ImportError:
        raise CarefulError(errno.ENOPKG, _MISSING, "BPF") from None
    except (OSError, AttributeError) as error:  # the library itself, or a symbol
        message = f"{_MISSING}; the installed package cannot be used: {error}"
        raise CarefulError(errno.ENOPKG, message, "BPF") from None
    return cdll


@contextmanager
def _captured_stderr() -> Iterator[list[str]]:
    """Collects the lines that C code writes to standard error, and does not show them."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


@contextmanager
def _headers() -> Iterator[None]:
    name = "BCC_KERNEL_SOURCE"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="careful-bcc-") as folder:
        for path, text in _HEADERS.items():
            file = Path(folder) / "include" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("{page}", str(os.sysconf("SC_PAGESIZE"))))
        os.environ[name] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def _has_ended(pid: int) -> bool:
    """Reports whether a process has ended, or is a zombie without memory."""
    try:
        Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return True
    return False


class Program(Closing):
    """A compiled tracing program; closing the program detaches everything.

    text: C source for bcc. Raises CarefulError: bcc is missing or not permitted, or the source does
    not compile.
    """

    def __init__(self, text: str) -> None:
        library()
        from bcc import BPF

        self._kinds = {"uprobe": BPF.KPROBE, "raw": BPF.RAW_TRACEPOINT}
        with _headers(), _captured_stderr() as lines:
            try:
                self._bpf = BPF(text=text.encode())
            except Exception as error:  # bcc raises nothing narrower
                failure = error
            else:
                return
        if os.geteuid() != 0:
            raise CarefulError(errno.EPERM, "must be run as root (sudo)", "trace")
        reason = next((line for line in lines if "error" in line), str(failure))
        raise CarefulError(errno.EIO, f"bcc cannot compile the program: {reason}", "trace")

    def close(self) -> None:
        """Unloads the program. Callers detach their events first."""
        with suppress(AttributeError):
            self._bpf.cleanup()

    def _load(self, function: str, kind: str) -> int:
        with _captured_stderr() as lines:
            try:
                return int(self._bpf.load_func(function.encode(), self._kinds[kind]).fd)
            except Exception as error:
                failure = error
        if isinstance(failure, OSError) and failure.errno == errno.EPERM:
            raise CarefulError(errno.EPERM, "must be run as root (sudo)", "trace")
        reason = lines[-1] if lines else str(failure)
        raise CarefulError(errno.EIO, f"the kernel refuses {function}: {reason}", "trace")

    def attach_uprobe(
        self, function: str, path: str, offset: int, pid: int, semaphore_offset: int
    ) -> int:
        """Runs a function of the program when a process executes an instruction.

        path: the file with the instruction; offset: the instruction's offset in the file, bytes;
        pid: the process; semaphore_offset: offset in the file of the word that counts listeners,
        bytes.

        Returns a descriptor for `detach`. Raises CarefulError: the process has ended, or the kernel
        refuses.
        """
        fd = self._load(function, "uprobe")
        name = f"careful_{pid}_{offset:x}".encode()
        with _captured_stderr():
            event = library().bpf_attach_uprobe(
                fd, 0, name, path.encode(), offset, pid, semaphore_offset
            )
        if event >= 0:
            return int(event)
        if _has_ended(pid):
            raise CarefulError(errno.ESRCH, "the process has ended", f"process {pid}")
        code = ctypes.get_errno()
        text = f"the kernel refuses a uprobe: {os.strerror(code)}"
        raise CarefulError(code or errno.EIO, text, f"process {pid}")

    def attach_tracepoint(self, function: str, tracepoint: str) -> int:
        """Runs a function at a kernel tracepoint; returns and raises like `attach_uprobe`."""
        fd = self._load(function, "raw")
        with _captured_stderr():
            event = library().bpf_attach_raw_tracepoint(fd, tracepoint.encode())
        if event < 0:
            code = ctypes.get_errno()
            text = f"the kernel lacks this tracepoint, or refuses access: {os.strerror(code)}"
            raise CarefulError(code or errno.EIO, text, tracepoint)
        return int(event)

    def detach(self, event: int) -> None:
        os.close(event)

    def put(self, table: str, key: int, value: int) -> None:
        """Sets an entry of a map whose keys and values are u32."""
        self._bpf[table.encode()][ctypes.c_uint32(key)] = ctypes.c_uint32(value)

    def number(self, table: str) -> int:
        return int(self._bpf[table.encode()][0].value)

    def descriptor(self, table: str) -> int:
        return int(self._bpf[table.encode()].map_fd)

    def open_ring(self, table: str, take: Callable[[bytes], None]) -> None:
        """Makes poll() pass each record of a ring buffer to `take`."""

        def on_record(_context: object, data: int, nbytes: int) -> int:
            take(ctypes.string_at(data, nbytes))
            return 0

        self._bpf[table.encode()].open_ring_buffer(on_record)

    def poll(self, timeout_ms: int) -> None:
        self._bpf.ring_buffer_poll(timeout_ms)


#: Flags of incomplete and of discarded records (linux/bpf.h).
_BUSY, _DISCARDED = 1 << 31, 1 << 30
_POSITION, _STATE = struct.Struct("=Q"), struct.Struct("=I")


class Ring:
    """A BPF ring buffer of records of one size, read many at a time; bcc reads one at a time.

    fd: descriptor of the map; ring_bytes: size of the ring; record_bytes: size of each record.
    """

    def __init__(self, fd: int, ring_bytes: int, record_bytes: int) -> None:
        page = mmap.PAGESIZE
        self._ring_bytes, self._record_bytes = ring_bytes, record_bytes
        self._step = (8 + record_bytes + 7) // 8 * 8  # the kernel's header comes first
        self._consumer = mmap.mmap(fd, page)
        # The kernel maps the data twice, so that no record is cut.
        self._producer = mmap.mmap(fd, page + 2 * ring_bytes, prot=mmap.PROT_READ, offset=page)

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()

    def take(self) -> list[bytes]:
        """Removes complete records, in order, and returns them."""
        (position,) = _POSITION.unpack_from(self._consumer)
        (end,) = _POSITION.unpack_from(self._producer)
        first = mmap.PAGESIZE + position % self._ring_bytes
        data = self._producer[first : first + end - position]
        records = []
        for start in range(0, len(data), self._step):
            (state,) = _STATE.unpack_from(data, start)
            if state & _BUSY:
                break
            position += self._step
            if not state & _DISCARDED:
                records.append(data[start + 8 : start + 8 + self._record_bytes])
        _POSITION.pack_into(self._consumer, 0, position)
        return records
