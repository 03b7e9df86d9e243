"""Writes the C source of `careful._binding` from the public headers.

The headers are the only declarations. They are preprocessed with CAREFUL_CDEF, which leaves out
includes, inline functions and assertions.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from cffi import FFI

#: Types of <linux/types.h>. __u64 is not uint64_t: their pointers do not convert.
KERNEL_TYPES = """
typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef unsigned long long __u64;
typedef int8_t __s8;
typedef int16_t __s16;
typedef int32_t __s32;
typedef long long __s64;
typedef uint16_t __be16;
typedef uint32_t __be32;
typedef unsigned long long __be64;
"""

#: Types of the C library that the headers name. `...` leaves the rest to the compiler.
LIBC_TYPES = """
struct sockaddr { uint16_t sa_family; ...; };
struct sockaddr_storage { uint16_t ss_family; ...; };
"""

#: Calls of libbpf and the C library that Python lacks.
SYSTEM = """
int bpf_obj_get(const char *path);
int bpf_obj_get_info_by_fd(int fd, void *info, uint32_t *info_bytes);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_delete_elem(int fd, const void *key);
int bpf_prog_get_fd_by_id(uint32_t id);
int fallocate(int fd, int mode, int64_t offset, int64_t bytes);
int renameat2(int folder, const char *source, int other, const char *target, unsigned int flags);
"""
SYSTEM_INCLUDES = "#include <bpf/bpf.h>\n#include <fcntl.h>\n#include <stdio.h>\n"

#: Callbacks from C to Python; `user` is a handle (`ffi.new_handle`).
CALLBACKS = """
extern "Python" void on_message(const struct careful_message *message, void *user);
extern "Python" void on_done(const struct careful_result *result, void *user);
extern "Python" void on_peer(struct careful *instance, uint32_t peer, uint32_t state, void *user);
"""


def declarations(cc: str, header: Path) -> str:
    """Returns the header's declarations, macros expanded, as text for `FFI.cdef`."""
    command = [cc, "-E", "-P", "-undef", "-nostdinc", "-DCAREFUL_CDEF", "-x", "c", str(header)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cc", default="cc", help="C compiler, for its preprocessor")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("headers", type=Path, nargs="+", help="in the order of their includes")
    args = parser.parse_args()

    ffi = FFI()
    ffi.cdef(KERNEL_TYPES + LIBC_TYPES)
    for header in args.headers:
        ffi.cdef(declarations(args.cc, header))
    ffi.cdef(SYSTEM)
    ffi.cdef(CALLBACKS)
    includes = "".join(f'#include "careful/{header.name}"\n' for header in args.headers)
    ffi.set_source("careful._binding", SYSTEM_INCLUDES + includes, py_limited_api=True)
    ffi.emit_c_code(str(args.output))


if __name__ == "__main__":
    main()
