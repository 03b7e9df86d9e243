"""The needs that `doctor` shows and `up` walks: careful_check() of libcareful, need by need."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from careful._abi import enum_names, ffi, lib
from careful.control.up_options import OPTIONS, UpOptions
from careful.errors import CarefulError


def _raise_limits() -> None:
    """Raise the limits as carefuld does, so that the same limits are looked at."""
    for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (hard, hard))


def walk(
    ifname: str, instance: str, options: UpOptions, skipped: tuple[str, ...] = ()
) -> Iterator[tuple[str, int, str]]:
    """Yield each need's name in `enum careful_check`, what careful_check() returned, its line."""
    raw = ffi.new("struct careful_options *")
    texts = [ffi.new("char[]", os.fsencode(one)) for one in (ifname, instance)]
    raw.ifname, raw.instance = texts
    for name in ("peers", "queue", "queues", "port", "rx_buffers", "tx_buffers", "reserve"):
        setattr(raw, name, getattr(options, name) or 0)
    modes = OPTIONS["xdp"].choices
    raw.xdp_mode = modes.index(options.xdp or modes[0])
    raw.require_zerocopy = bool(options.require_zerocopy)
    _raise_limits()
    for number, name in enum_names("careful_check", "CAREFUL_CHECK_").items():
        if number < lib.CAREFUL_CHECKS and name not in skipped:
            said = ffi.new("struct careful_error *")
            code = lib.careful_check(raw, number, said)
            yield name, code, ffi.string(said.text).decode(errors="replace")


def of_the_machine(ifname: str, instance: str, options: UpOptions) -> None:
    """Look at the needs that no interface has a part in, before `up` touches anything.

    Raises:
        CarefulError: one is not met, in the words of `doctor`.
    """
    for name, code, text in walk(ifname, instance, options):
        if name == "options":
            return
        if code < 0:
            raise CarefulError(-code, text)
