"""The configuration file: names of nodes, and defaults of `up`.

TOML: [nodes] gives hosts a name, [up] the defaults of all instances, [instance.NAME] those of
one, [transfer] and [state] what get, put and what is kept do. Owns what may stand there and its
types.
"""

from __future__ import annotations

import errno
import os
import tomllib
import types
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from careful._abi import lib
from careful.address import Address, resolve
from careful.errors import CarefulError, from_os

#: Read in this order where none is named; a later one overrides.
DEFAULT_PATHS = (Path("/etc/careful.toml"), Path("~/.config/careful/careful.toml"))

XDP_MODES = ("auto", "native", "generic")
WAIT_MODES = ("adaptive", "spin", "block")
PROTOCOLS = ("careful", "traditional")
#: Who tunes an instance that is brought up.
TUNE = ("auto", "off")


@dataclass(frozen=True)
class UpOptions:
    """How to bring an instance up; None leaves it to carefuld's default.

    Attributes:
        name: what peers call this host.
        peers: P, windows that the receive buffers are divided into.
        queue: RX and TX queue.
        port: UDP port.
        rx_buffers: receive buffers, a power of two.
        tx_buffers: send buffers.
        reserve: receive buffers that no window holds, granted for large messages.
        keys: directory of keys that a session takes, or "none".
        xdp: auto, native or generic.
        require_zerocopy: fail rather than copy.
        wait: adaptive, spin or block.
        protocol: careful, or traditional (P2 section 5.2).
        spin_us: adaptive: how long to spin, microseconds.
        sync_ms: silence before a peer is asked, milliseconds.
        stall_ms: silence before a peer counts as gone, milliseconds.
        cpu: CPU to run on.
        export: directories that peers may read; with ":rw" write, too.
        insecure: they may write where sessions take no key.
    """

    name: str | None = None
    peers: int | None = None
    queue: int | None = None
    port: int | None = None
    rx_buffers: int | None = None
    tx_buffers: int | None = None
    reserve: int | None = None
    keys: str | None = None
    xdp: str | None = None
    require_zerocopy: bool | None = None
    wait: str | None = None
    protocol: str | None = None
    spin_us: int | None = None
    sync_ms: int | None = None
    stall_ms: int | None = None
    cpu: int | None = None
    export: tuple[str, ...] | None = None
    insecure: bool | None = None

    def over(self, defaults: UpOptions) -> UpOptions:
        """These options, with what they leave open taken from `defaults`."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(defaults, **{k: v for k, v in given.items() if v is not None})


#: What carefuld takes where an option is not given (`carefuld --help`); no name is the
#: instance's, no CPU any.
DEFAULTS = UpOptions(
    peers=8,
    queue=0,
    port=int(lib.CAREFUL_PORT_DEFAULT),
    rx_buffers=512,
    tx_buffers=512,
    reserve=0,
    xdp="auto",
    require_zerocopy=False,
    insecure=False,
    wait="adaptive",
    protocol="careful",
    spin_us=50,
    sync_ms=200,
    stall_ms=30000,
    export=(),
)

#: What a transfer does when the network loses a frame.
ON_LOSS = ("repair", "fail")
_CHOICES = {"xdp": XDP_MODES, "wait": WAIT_MODES, "protocol": PROTOCOLS}


@dataclass(frozen=True)
class Config:
    """All configuration files together.

    Attributes:
        nodes: name -> address, as written.
        up: defaults of all instances.
        instances: name -> what an instance has otherwise.
        tunes: instance, "" for all -> one of TUNE.
        on_loss: of [transfer]: one of ON_LOSS; None: not said.
        state_directory: of [state]: where state is kept; None: not said.
        paths: the files that were read.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    up: UpOptions = field(default_factory=UpOptions)
    instances: dict[str, UpOptions] = field(default_factory=dict)
    tunes: dict[str, str] = field(default_factory=dict)
    on_loss: str | None = None
    state_directory: Path | None = None
    paths: tuple[Path, ...] = ()

    def resolve(self, host: str) -> Address:
        """The address of a node's name, or of what the system resolves.

        Raises:
            CarefulError: unknown.
        """
        return resolve(self.nodes.get(host, host))

    def node_at(self, address: Address) -> str | None:
        """The name that [nodes] gives to an address."""
        for name, text in self.nodes.items():
            if text.strip("[]") == address.ip or text == str(address):
                return name
        return None

    def options(self, instance: str) -> UpOptions:
        """The options of an instance before the command line."""
        return self.instances.get(instance, UpOptions()).over(self.up)

    def tune(self, instance: str) -> str:
        """Who tunes an instance, before the command line: one of TUNE."""
        return self.tunes.get(instance) or self.tunes.get("") or "off"


def _bad(path: Path, text: str) -> CarefulError:
    return CarefulError(errno.EINVAL, text, str(path))


def matches(value: Any, hint: Any) -> bool:
    """Whether a value from a file or a program is of an option's type."""
    if isinstance(hint, types.UnionType):
        return any(matches(value, one) for one in get_args(hint) if one is not type(None))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool):
        return isinstance(value, hint)
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _tune(path: Path, where: str, table: Any) -> str | None:
    """Of one table; carefuld has no such option."""
    value = table.get("tune") if isinstance(table, dict) else None
    if value is not None and value not in TUNE:
        raise _bad(path, f"{where} tune = {value!r}: one of {', '.join(TUNE)}")
    return value


def _options(path: Path, where: str, table: Any) -> UpOptions:
    if not isinstance(table, dict):
        raise _bad(path, f"{where} must be a table")
    hints = get_type_hints(UpOptions)
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key == "tune":
            continue
        if key not in hints:
            known = ", ".join([*hints, "tune"])
            raise _bad(path, f"{where} has no option {key!r}; there are {known}")
        if not matches(value, hints[key]):
            raise _bad(path, f"{where} {key} = {value!r}: that is of the wrong type")
        if key in _CHOICES and value not in _CHOICES[key]:
            raise _bad(path, f"{where} {key} = {value!r}: one of {', '.join(_CHOICES[key])}")
        found[key] = tuple(value) if isinstance(value, list) else value
    return UpOptions(**found)


def _state_directory(path: Path, table: Any) -> Path | None:
    if not isinstance(table, dict) or table.keys() - {"directory"}:
        raise _bad(path, "[state] must be a table of directory alone")
    if not table:
        return None
    value = table["directory"]
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise _bad(path, f"[state] directory = {value!r}: must be an absolute path")
    return Path(value)


def parse(text: str, path: Path) -> Config:
    """The configuration in a file's text.

    Raises:
        CarefulError: it is malformed (with the line), or has what no option is.
    """
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # also a number of thousands of digits, which int() refuses
        raise _bad(path, str(error)) from None
    except RecursionError:
        raise _bad(path, "nested too deeply") from None
    unknown = set(tree) - {"nodes", "up", "instance", "transfer", "state"}
    if unknown:
        tables = "[nodes], [up], [instance.NAME], [transfer], [state]"
        raise _bad(path, f"[{min(unknown)}] is unknown; there are {tables}")
    moving = tree.get("transfer", {})
    if not isinstance(moving, dict) or moving.keys() - {"on_loss"}:
        raise _bad(path, "[transfer] must be a table of on_loss alone")
    if moving and moving["on_loss"] not in ON_LOSS:
        raise _bad(path, f"[transfer] on_loss: one of {', '.join(ON_LOSS)}")
    nodes = tree.get("nodes", {})
    if not isinstance(nodes, dict) or not all(isinstance(one, str) for one in nodes.values()):
        raise _bad(path, '[nodes] must be lines of NAME = "ADDRESS"')
    instances = tree.get("instance", {})
    if not isinstance(instances, dict) or "" in instances:
        raise _bad(path, "[instance.NAME] must be a table, and have a name")
    found: dict[str, tuple[str, Any]] = {"": ("[up]", tree.get("up", {}))}
    for name, one in instances.items():
        found[name] = (f"[instance.{name}]", one)
    options = {name: _options(path, *table) for name, table in found.items()}
    tunes = {name: said for name, table in found.items() if (said := _tune(path, *table))}
    return Config(
        nodes,
        options.pop(""),
        options,
        tunes,
        moving.get("on_loss"),
        _state_directory(path, tree.get("state", {})),
        (path,),
    )


def _read(path: Path) -> Config:
    try:
        return parse(path.read_text(encoding="utf-8"), path)
    except UnicodeDecodeError:
        raise _bad(path, "is not UTF-8") from None
    except CarefulError:
        raise
    except OSError as error:
        raise from_os(error, str(path)) from None


def load(path: Path | None = None) -> Config:
    """The configuration that is in effect.

    Args:
        path: the one file to read; else $CAREFUL_CONFIG names it; else DEFAULT_PATHS
            that exist, together.

    Raises:
        CarefulError: a named file cannot be read, or one is malformed.
    """
    named = path or (Path(text) if (text := os.environ.get("CAREFUL_CONFIG")) else None)
    if named is not None:
        return _read(named)
    whole = Config()
    for default in DEFAULT_PATHS:
        try:
            one = _read(default.expanduser())
        except CarefulError as error:
            if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
                continue
            raise
        whole = Config(
            whole.nodes | one.nodes,
            one.up.over(whole.up),
            whole.instances | one.instances,
            whole.tunes | one.tunes,
            one.on_loss or whole.on_loss,
            one.state_directory or whole.state_directory,
            whole.paths + one.paths,
        )
    return whole
