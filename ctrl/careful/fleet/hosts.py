"""The TOML file of hosts: their names, and how a program is started on each.

Top-level keys hold for all hosts, those of [host.NAME] for one.
"""

from __future__ import annotations

import errno
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

from careful import owned
from careful.errors import CarefulError

#: Keys, for one host or for all hosts -> their defaults.
_KEYS = {"on": "ssh {}", "interface": "eth1", "program": "carefulctl", "up": "", "address": ""}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")


@dataclass(frozen=True)
class Host:
    """One host.

    Attributes:
        name: its name in the file; replaces {} in `on`.
        prefix: words before a command that runs there.
        address: its name or address for the other hosts.
        interface: careful's interface there.
        program: carefulctl there.
        up: words for `carefulctl up IFACE`.
    """

    name: str
    prefix: tuple[str, ...]
    address: str
    interface: str
    program: str = "carefulctl"
    up: tuple[str, ...] = ()

    def command(self, *words: str) -> list[str]:
        return [*self.prefix, self.program, *words]


def _error(path: Path, text: str) -> CarefulError:
    return CarefulError(errno.EINVAL, text, str(path))


def _words(path: Path, prefix: str, key: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise _error(path, f"{prefix}{key} = {text!r}: {error}") from None


def _check_keys(path: Path, prefix: str, table: dict[str, object]) -> dict[str, str]:
    values = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise _error(path, f"{prefix}{key} is unknown; there are {', '.join(_KEYS)}")
        if not isinstance(value, str) or "\0" in value:
            raise _error(path, f"{prefix}{key} = {value!r} must be a text")
        values[key] = value
    return values


def _host(path: Path, name: str, table: object, common: dict[str, str]) -> Host:
    prefix = f"[host.{name}] "
    if not _NAME.fullmatch(name):
        raise _error(path, f"{prefix}a name consists of letters, digits, _ . : -")
    if not isinstance(table, dict):
        raise _error(path, f"{prefix}must be a table")
    values = _KEYS | common | _check_keys(path, prefix, table)
    if not values["interface"] or not values["program"]:
        raise _error(path, f"{prefix}interface and program must not be empty")
    return Host(
        name,
        tuple(word.replace("{}", name) for word in _words(path, prefix, "on", values["on"])),
        values["address"] or name,
        values["interface"],
        values["program"],
        _words(path, prefix, "up", values["up"]),
    )


def parse(text: str, path: Path) -> list[Host]:
    """Parses the hosts of a file's text, in its order. Raises CarefulError: the text is malformed,
    or names no host.
    """
    try:
        tree = tomllib.loads(text)
    except ValueError as error:
        raise _error(path, str(error)) from None
    except RecursionError:
        raise _error(path, "nested too deeply") from None
    tables = tree.pop("host", {})
    if not isinstance(tables, dict) or not tables:
        raise _error(path, "names no host: add a table [host.NAME] for each host")
    if "address" in tree:
        raise _error(path, "address belongs to one host: set it in [host.NAME]")
    common = _check_keys(path, "", tree)
    hosts = [_host(path, name, table, common) for name, table in tables.items()]
    addresses = [one.address for one in hosts]
    if repeated := [one for one in addresses if addresses.count(one) > 1]:
        raise _error(path, f"two hosts have the address {repeated[0]}")
    return hosts


def read(path: Path) -> list[Host]:
    """Reads the hosts of a file. Raises CarefulError: unreadable or malformed."""
    try:
        return parse(owned.read(path), path)
    except CarefulError as error:
        if error.errno == errno.ENOENT:
            error.add("it lists the hosts: carefulctl help hosts")
        raise


def chosen(hosts: list[Host], names: tuple[str, ...]) -> list[Host]:
    """Returns the hosts with these names, in the file's order; without names, all. Raises
    CarefulError: the file has no such host.
    """
    known = {one.name for one in hosts}
    if unknown := [name for name in names if name not in known]:
        text = f"the file has no such host; there are {', '.join(sorted(known))}"
        raise CarefulError(errno.ENOENT, text, unknown[0])
    return [one for one in hosts if not names or one.name in names]
