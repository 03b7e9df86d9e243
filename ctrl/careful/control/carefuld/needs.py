"""Checks needs with careful_check(); `doctor` shows them, and `up` requires them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from careful._abi import enum_names, error_text, ffi, lib
from careful.control.options.up_options import OPTIONS, UpOptions, flag
from careful.errors import CarefulError


def walk(
    ifname: str, instance: str, options: UpOptions, skipped: tuple[str, ...] = ()
) -> Iterator[tuple[str, int, str]]:
    """Yields each need's name in `enum careful_check`, careful_check()'s result, and its text."""
    raw = ffi.new("struct careful_options *")
    texts = [ffi.new("char[]", os.fsencode(text)) for text in (ifname, instance)]
    raw.ifname, raw.instance = texts
    for name in ("peers", "queue", "queues", "port", "rx_buffers", "tx_buffers", "reserve"):
        setattr(raw, name, getattr(options, name) or 0)
    modes = OPTIONS["xdp"].choices
    raw.xdp_mode = modes.index(options.xdp or modes[0])
    raw.require_zerocopy = bool(options.require_zerocopy)
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):  # as carefuld does
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (hard, hard))
    for number, name in enum_names("careful_check", "CAREFUL_CHECK_").items():
        if number < lib.CAREFUL_CHECKS and name not in skipped:
            error = ffi.new("struct careful_error *")
            code = lib.careful_check(raw, number, error)
            yield name, code, error_text(error, flag)


def of_the_machine(ifname: str, instance: str, options: UpOptions) -> None:
    """Checks the machine's needs, before `up` changes anything.

    Raises CarefulError, in the words of `doctor`, if a need is not met.
    """
    for name, code, text in walk(ifname, instance, options):
        if name == "options":
            return
        if code < 0:
            raise CarefulError(-code, text)
