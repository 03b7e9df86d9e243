"""The configuration file in TOML: tables, keys and their types.

[nodes] names hosts, [up] has defaults for all instances, [instance.NAME] for one, [socket] the
group that may use them; [transfer] and [state] configure transfers and the state directory.
"""

from __future__ import annotations

import errno
import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from careful import owned
from careful.address import Address, resolve, resolve_all
from careful.control.options import exports
from careful.control.options.up_options import OPTIONS, UpOptions, bad_seal, matches, refused, takes
from careful.errors import CarefulError, shown
from careful.jsonout import Json

#: Read in this order if no file is named; a later one overrides.
DEFAULT_PATHS = (Path("/etc/careful.toml"), Path("~/.config/careful/careful.toml"))

#: Values of `tune`: with "auto", `up` also starts the tuner.
TUNE = ("auto", "off")
#: Reactions of a transfer to a lost frame.
ON_LOSS = ("repair", "fail")


@dataclass(frozen=True)
class Config:
    """All configuration files together.

    Attributes:
        nodes: name -> address, as written.
        up: defaults of all instances.
        instances: name -> options of that instance.
        tunes: instance, "" for all -> one of TUNE.
        on_loss: [transfer]: one of ON_LOSS; None if not set.
        state_directory: [state]: where state is kept; None if not set.
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
        """Returns the address of a node or host name. Raises CarefulError if it is unknown."""
        return resolve(self.nodes.get(host, host))

    def resolve_all(self, host: str) -> list[Address]:
        """Returns all addresses of a node or host name. Raises CarefulError if it is unknown."""
        return resolve_all(self.nodes.get(host, host))

    def sealed(self, seal: str) -> str:
        """Returns the value of `seal` with hosts replaced by addresses.

        Raises CarefulError if a host is unknown or the mode does not exist.
        """
        modes = []
        for mode_text in seal.split(","):
            mode, at, host = mode_text.partition("@")
            if bad := bad_seal(mode_text):
                raise CarefulError(errno.EINVAL, f"seal {bad}")
            modes.append(mode + at + (self.resolve(host).ip if at else ""))
        return ",".join(modes)

    def exported(self, texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Returns exports with hosts replaced by addresses.

        Raises CarefulError if a host is unknown or an export is malformed.
        """
        if texts is None:
            return None
        parsed = map(exports.parse, texts)
        return tuple(
            str(replace(export, hosts=tuple(self.resolve(host).ip for host in export.hosts)))
            for export in parsed
        )

    def node_at(self, address: Address) -> str | None:
        for name, text in self.nodes.items():
            if text.strip("[]") == address.ip or text == str(address):
                return name
        return None

    def options(self, instance: str) -> UpOptions:
        """Returns the options of an instance before the command line."""
        return self.instances.get(instance, UpOptions()).over(self.up)

    def tune(self, instance: str) -> str:
        """Returns one of TUNE for an instance, before the command line."""
        return self.tunes.get(instance) or self.tunes.get("") or "off"


class _File:
    """The text of a file, and the lines for error messages."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def bad(self, text: str, table: str = "", key: str = "") -> CarefulError:
        line = self._line(table, key) if table else 0
        where = f"{self.path}:{line}" if line else str(self.path)
        return CarefulError(errno.EINVAL, shown(text), where)

    def _line(self, table: str, key: str) -> int:
        """Returns the line of a table or key; 0 if not found."""
        inside = False
        for number, line in enumerate(self.text.splitlines(), 1):
            if head := re.match(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$", line):
                inside = re.sub(r"[\s\"']", "", head[1]) == table
                if inside and not key:
                    return number
            elif inside and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return 0


def _tune(file: _File, where: str, table: object) -> str | None:
    value = table.get("tune") if isinstance(table, dict) else None
    if value is not None and value not in TUNE:
        text = f"[{where}] tune = {value!r}: must be one of {', '.join(TUNE)}"
        raise file.bad(text, where, "tune")
    return value


def _options(file: _File, where: str, table: object) -> UpOptions:
    if not isinstance(table, dict):
        raise file.bad(f"[{where}] must be a table")
    options: Json = {}
    for key, value in table.items():
        if key == "tune":
            continue
        if key not in OPTIONS:
            known = ", ".join([*OPTIONS, "tune"])
            raise file.bad(f"[{where}] has no option {key!r}; there are {known}", where, key)
        setting = f"[{where}] {key} = {value!r}"
        if not matches(key, value):
            text = f"{setting}: wrong type, it needs {takes(key)}"
            raise file.bad(text, where, key)
        if reason := refused(key, value):
            raise file.bad(f"{setting}: {reason}", where, key)
        options[key] = tuple(value) if isinstance(value, list) else value
    return UpOptions(**options)


def _table(file: _File, tree: Json, name: str, key: str) -> Json:
    """Returns a table that may have one key."""
    table: object = tree.get(name, {})
    if not isinstance(table, dict) or table.keys() - {key}:
        raise file.bad(f"[{name}] must be a table with no key but {key}", name)
    return table


def _state_directory(file: _File, table: Json) -> Path | None:
    if not table:
        return None
    value = table["directory"]
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        text = f"[state] directory = {value!r}: must be an absolute path"
        raise file.bad(text, "state", "directory")
    return Path(value)


def parse(text: str, path: Path) -> Config:
    """Parses the text of a configuration file.

    Raises CarefulError, with the line, if the text is malformed or an option is unknown.
    """
    file = _File(path, text)
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # also raised by int() for a number with thousands of digits
        raise file.bad(str(error)) from None
    except RecursionError:
        raise file.bad("nested too deeply") from None
    unknown = set(tree) - {"nodes", "up", "instance", "socket", "transfer", "state"}
    if unknown:
        known = "[nodes], [up], [instance.NAME], [socket], [transfer], [state]"
        raise file.bad(f"[{min(unknown)}] is unknown; there are {known}", min(unknown))
    transfer = _table(file, tree, "transfer", "on_loss")
    if transfer and transfer["on_loss"] not in ON_LOSS:
        raise file.bad(f"[transfer] on_loss must be {' or '.join(ON_LOSS)}", "transfer", "on_loss")
    nodes = tree.get("nodes", {})
    if not isinstance(nodes, dict):
        raise file.bad('[nodes] must be lines of NAME = "ADDRESS"', "nodes")
    for name, address in nodes.items():
        if not isinstance(address, str) or not address:
            text = f'[nodes] {name} = {address!r}: must be NAME = "ADDRESS"'
            raise file.bad(text, "nodes", name)
    instances = tree.get("instance", {})
    if not isinstance(instances, dict) or "" in instances:
        raise file.bad("[instance.NAME] must be a table with a name")
    tables: dict[str, tuple[str, object]] = {"": ("up", tree.get("up", {}))}
    for name, table in instances.items():
        if not isinstance(table, dict):
            text = f"[instance] {name} = {table!r}: which instance? [instance.NAME] has its options"
            raise file.bad(text, "instance", name)
        tables[name] = (f"instance.{name}", table)
    options = {name: _options(file, *table) for name, table in tables.items()}
    tunes = {name: tune for name, table in tables.items() if (tune := _tune(file, *table))}
    socket = _options(file, "socket", _table(file, tree, "socket", "group"))
    up = options.pop("").over(socket)
    return Config(
        nodes,
        up,
        options,
        tunes,
        transfer.get("on_loss"),
        _state_directory(file, _table(file, tree, "state", "directory")),
        (path,),
    )


def _read(path: Path) -> Config:
    return parse(owned.read(path), path)


def load(path: Config | Path | str | None = None) -> Config:
    """Loads the configuration that is in effect.

    path: the only file to read, or a configuration; else $CAREFUL_CONFIG names the file; else those
    of DEFAULT_PATHS that exist, together. Raises CarefulError: a named file cannot be read, or a
    file is malformed.
    """
    if isinstance(path, Config):
        return path
    if named := path or os.environ.get("CAREFUL_CONFIG"):
        return _read(Path(named))
    merged = Config()
    for default in DEFAULT_PATHS:
        try:
            config = _read(default.expanduser())
        except RuntimeError:  # our user has no home
            continue
        except CarefulError as error:
            if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
                continue
            raise
        merged = Config(
            merged.nodes | config.nodes,
            config.up.over(merged.up),
            merged.instances | config.instances,
            merged.tunes | config.tunes,
            config.on_loss or merged.on_loss,
            config.state_directory or merged.state_directory,
            merged.paths + config.paths,
        )
    return merged
