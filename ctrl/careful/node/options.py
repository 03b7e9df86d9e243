"""The options of careful.open(), which are those of `carefulctl up`, and of careful.attach()."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, TypedDict

from careful._abi import enum_names
from careful.control.options.config import Config
from careful.control.options.up_options import OPTIONS, UpOptions, matches
from careful.errors import CarefulError

_Wait = Literal["adaptive", "spin", "block"]
#: Options that concern carefuld, not an instance.
NOT_OURS = tuple(name for name, one in OPTIONS.items() if one.of_daemon)
#: The most bytes of a program's name.
_NAME_BYTES = 31


class OpenOptions(TypedDict, total=False):
    """Keywords of careful.open(): the options of UpOptions except NOT_OURS."""

    peers: int
    name: str
    xdp: Literal["auto", "native", "generic"]
    require_zerocopy: bool
    wait: _Wait
    protocol: Literal["careful", "traditional"]
    spin_us: int
    queue: int
    queues: int
    port: int
    rx_buffers: int
    tx_buffers: int
    reserve: int
    keys: str
    seal: str
    sync_ms: int
    stall_ms: int
    repair: Literal["on", "off"]
    file_writes: Literal["engine", "workers"]


class AttachOptions(TypedDict, total=False):
    """Keywords of careful.attach()."""

    name: str
    memory_bytes: int
    wait: _Wait
    spin_us: int


def _field(ifname: str, name: str, value: object) -> tuple[str, object]:
    if not matches(name, value):
        raise TypeError(f"{name} = {value!r} has the wrong type")
    option = OPTIONS[name]
    if option.choices:
        names = {name: number for number, name in enum_names(*option.enum).items()}
        if value not in names:
            text = f"{name} = {value!r} must be one of {', '.join(names)}"
            raise CarefulError(errno.EINVAL, text, ifname)
        return option.field or name, names[str(value)]
    if isinstance(value, int) and not 0 <= value < 1 << 32:
        raise CarefulError(errno.EINVAL, f"{name} = {value} must be from 0 to 2^32 - 1", ifname)
    return name, value


def options_of(instance: str, config: Config, given: OpenOptions | None = None) -> UpOptions:
    """Returns an instance's options: those given, then those of the configuration. Raises
    TypeError: careful.open() has no such option.
    """
    given = given or {}
    if misplaced := [name for name in NOT_OURS if name in given]:
        raise TypeError(f"{misplaced[0]} is an option of carefuld: give it to `carefulctl up`")
    merged = UpOptions(**given).over(config.options(instance))
    return replace(merged, seal=config.sealed(merged.seal)) if merged.seal else merged


def fields_of(ifname: str, instance: str, options: UpOptions) -> dict[str, object]:
    """Returns the fields of struct careful_options."""
    fields_: dict[str, object] = {"ifname": ifname, "instance": instance, "measure_burst": 1}
    for option in fields(options):
        value = getattr(options, option.name)
        if value is not None and option.name not in NOT_OURS:
            field, number = _field(ifname, option.name, value)
            fields_[field] = number
    return fields_


def attach_fields(
    path: str,
    subject: str,
    *,
    name: str | None = None,
    memory_bytes: int = 16 << 20,
    wait: str = "adaptive",
    spin_us: int = 50,
) -> dict[str, object]:
    """Returns the fields of struct careful_attach_options."""
    numbers = {"memory_bytes": memory_bytes, "spin_us": spin_us}
    for field, value in numbers.items():
        if not isinstance(value, int) or not 0 < value < 1 << 32:
            text = f"{field} = {value!r} must be from 1 to 2^32 - 1"
            raise CarefulError(errno.EINVAL, text, subject)
    program = Path(sys.argv[0]).name if name is None else name
    program = os.fsencode(program or "python")[:_NAME_BYTES].decode(errors="ignore")
    return {"path": path, "name": program, **dict([_field(subject, "wait", wait)]), **numbers}
