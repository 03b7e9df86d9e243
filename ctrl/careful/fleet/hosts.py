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

#: Keys, for a host or for all -> their defaults.
_KEYS = {"on": "ssh {}", "interface": "eth1", "program": "carefulctl", "up": "", "address": ""}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")


@dataclass(frozen=True)
class Host:
    """One host.

    Attributes:
        name: its name in the file; replaces {} in `on`.
        prefix: words before a command that is run there.
        address: its name or address for the other hosts.
        interface: careful's there.
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


def _bad(path: Path, text: str) -> CarefulError:
    return CarefulError(errno.EINVAL, text, str(path))


def _words(path: Path, where: str, key: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise _bad(path, f"{where}{key} = {text!r}: {error}") from None


def _checked(path: Path, where: str, table: dict[str, object]) -> dict[str, str]:
    found = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise _bad(path, f"{where}{key} is unknown; there are {', '.join(_KEYS)}")
        if not isinstance(value, str) or "\0" in value:
            raise _bad(path, f"{where}{key} = {value!r}: must be a text")
        found[key] = value
    return found


def _host(path: Path, name: str, table: object, common: dict[str, str]) -> Host:
    where = f"[host.{name}] "
    if not _NAME.fullmatch(name):
        raise _bad(path, f"{where}a name consists of letters, digits, _ . : -")
    if not isinstance(table, dict):
        raise _bad(path, f"{where}must be a table")
    found = _KEYS | common | _checked(path, where, table)
    if not found["interface"] or not found["program"]:
        raise _bad(path, f"{where}interface and program must not be empty")
    return Host(
        name,
        tuple(word.replace("{}", name) for word in _words(path, where, "on", found["on"])),
        found["address"] or name,
        found["interface"],
        found["program"],
        _words(path, where, "up", found["up"]),
    )


def parse(text: str, path: Path) -> list[Host]:
    """Parses the hosts of a file's text, in its order.

    Raises CarefulError if it is malformed or names no host.
    """
    try:
        tree = tomllib.loads(text)
    except ValueError as error:
        raise _bad(path, str(error)) from None
    except RecursionError:
        raise _bad(path, "nested too deeply") from None
    tables = tree.pop("host", {})
    if not isinstance(tables, dict) or not tables:
        raise _bad(path, "names no host: a table [host.NAME] for each")
    if "address" in tree:
        raise _bad(path, "address belongs to one host: set it in [host.NAME]")
    common = _checked(path, "", tree)
    hosts = [_host(path, name, table, common) for name, table in tables.items()]
    addresses = [one.address for one in hosts]
    if twice := [one for one in addresses if addresses.count(one) > 1]:
        raise _bad(path, f"two hosts have the address {twice[0]}")
    return hosts


def read(path: Path) -> list[Host]:
    """Reads the hosts of a file. Raises CarefulError if it cannot be read, or like parse()."""
    try:
        return parse(owned.read(path), path)
    except CarefulError as error:
        if error.errno == errno.ENOENT:
            error.add("it lists the hosts: carefulctl help hosts")
        raise


def chosen(hosts: list[Host], names: tuple[str, ...]) -> list[Host]:
    """Returns the hosts with these names, in the file's order; all without names.

    Raises CarefulError if the file has no such host.
    """
    known = {one.name for one in hosts}
    if unknown := [name for name in names if name not in known]:
        text = f"the file has no such host; there are {', '.join(sorted(known))}"
        raise CarefulError(errno.ENOENT, text, unknown[0])
    return [one for one in hosts if not names or one.name in names]
