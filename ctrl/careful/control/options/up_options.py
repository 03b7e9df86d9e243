"""The options of `carefulctl up`, each declared once as a field of UpOptions.

The command line (cli/instance/up.py), careful.toml (config.py), careful.open() (node/options.py),
carefuld's command line (command_line.py), `up --reload` (reload.py) and a table of the manual
derive from it.
"""

from __future__ import annotations

import errno
import grp
import os
import types
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args, get_type_hints

from careful._abi import lib
from careful.control.options import exports
from careful.errors import CarefulError

#: Modes of `seal`.
SEALS = ("off", "auth", "encrypt")
_NAME_BYTES_MAX = int(lib.CAREFUL_NAME_BYTES) - 1


@dataclass(frozen=True)
class Option:
    """The declaration of an option, except its name and type.

    Attributes:
        help: help text of the command line, without the default.
        shown: carefuld's default in words; "": help does not show it.
        default: carefuld's value if the option is not given.
        metavar: name of the value on the command line.
        value: the values in careful.toml, in words; "": `choices`.
        least, most: the range of a number, in the unit of the field's name.
        power_of_two: the number must be a power of two.
        repeated: the command line may give the option several times.
        live: carefuld accepts changes while it runs.
        of_daemon: concerns only carefuld, not a program with a queue of its own.
        field: its name in struct careful_options, if that differs.
        enum: the C enum of a choice, and the prefix of the enum's names.
    """

    help: str
    shown: str = ""
    default: object = None
    metavar: str | None = None
    value: str = ""
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    power_of_two: bool = False
    repeated: bool = False
    live: bool = False
    of_daemon: bool = False
    field: str = ""
    enum: tuple[str, str] = ("", "")


def _option(help_: str, shown: str = "", default: object = None, **more: Any) -> Any:
    return field(default=None, metadata={"option": Option(help_, shown, default, **more)})


def _choice(help_: str, *choices: str, **more: Any) -> Any:
    return _option(help_, choices[0], choices[0], choices=choices, **more)


def _number(help_: str, least: int, most: int, default: int | None = None, **more: Any) -> Any:
    shown = more.pop("shown", "" if default is None else str(default))
    return _option(help_, shown, default, least=least, most=most, **more)


def _buffers(help_: str) -> Any:
    most = int(lib.CAREFUL_BUFFERS_MAX)
    return _number(help_, 1, most, 512, metavar="N", value="buffers", power_of_two=True)


@dataclass(frozen=True)
class UpOptions:
    """The options of an instance; None leaves an option to carefuld's default."""

    peers: int | None = _number(
        "Number of peers that share the receive buffers (R).",
        1,
        int(lib.CAREFUL_PEERS_MAX),
        8,
        metavar="P",
        value="windows",
    )
    export: tuple[str, ...] | None = _option(
        "Let peers read DIR, or with :rw write it too (with :rw,owners, owners and set-user-ID "
        "bits as root may; with :rw,devices or :ro,devices, block devices below DIR, too). "
        "DIR:rw,host=HOST or DIR:ro,host=HOST is for that host alone. May be repeated.",
        default=(),
        metavar="DIR[:rw[,owners]]",
        value="list of `DIR[:rw]`",
        repeated=True,
        live=True,
        of_daemon=True,
    )
    insecure: bool | None = _option(
        "Allow :rw exports without keys.", default=False, live=True, of_daemon=True
    )
    lend_bytes: int | None = _number(
        "Lend this much of this host's memory to peers (`help memory`).",
        1,
        1 << 50,
        metavar="BYTES",
        value="bytes",
        of_daemon=True,
    )
    lend_host_bytes: int | None = _number(
        "The most memory that one host may hold.",
        1,
        1 << 50,
        shown="half of --lend",
        metavar="BYTES",
        value="bytes",
        of_daemon=True,
    )
    lend_keep_ms: int | None = _number(
        "How long a host's memory stays after its session ended.",
        1,
        24 * 3600 * 1000,
        60_000,
        shown="60s",
        of_daemon=True,
    )
    group: str | None = _option(
        "Group whose members may use careful here, besides root (`carefulctl help privileges`).",
        metavar="GROUP",
        value="name of a group",
        of_daemon=True,
    )
    name: str | None = _option(
        "Name of this host for peers.", "--instance, else the hostname", metavar="NAME"
    )
    xdp: str | None = _choice(
        "XDP mode; auto measures which is better, once.",
        *("auto", "native", "generic"),
        field="xdp_mode",
        enum=("careful_xdp_mode", "CAREFUL_XDP_"),
    )
    require_zerocopy: bool | None = _option(
        "Fail if frames would have to be copied.", default=False
    )
    wait: str | None = _choice(
        "How carefuld waits for frames.",
        *("adaptive", "spin", "block"),
        field="wait_mode",
        enum=("careful_wait_mode", "CAREFUL_WAIT_"),
        live=True,
    )
    protocol: str | None = _choice(
        "traditional keeps copies of frames and sends them again (`help protocols`).",
        *("careful", "traditional"),
        enum=("careful_protocol", "CAREFUL_PROTOCOL_"),
    )
    spin_us: int | None = _number(
        "How long adaptive spins before it blocks.", 1, 10**6, 50, shown="50us", live=True
    )
    queue: int | None = _number(
        "The RX and TX queue to use.", 0, int(lib.CAREFUL_QUEUES_MAX) - 1, 0, metavar="Q"
    )
    queues: int | None = _number(
        "Use queues 0 to N-1, and spread peers over them (`help queues`).",
        1,
        int(lib.CAREFUL_SPREAD_MAX),
        1,
        metavar="N",
    )
    port: int | None = _number(
        "UDP port. A VLAN or macvlan on an interface with careful needs one of its own (`help "
        "promise`).",
        1,
        65535,
        int(lib.CAREFUL_PORT_DEFAULT),
        metavar="PORT",
        value="UDP port",
    )
    rx_buffers: int | None = _buffers("Receive buffers, a power of two.")
    tx_buffers: int | None = _buffers("Send buffers, a power of two.")
    reserve: int | None = _number(
        "Receive buffers kept for large messages (`help reservation`).",
        0,
        65535,
        0,
        metavar="N",
        value="buffers",
    )
    keys: str | None = _option(
        "Directory of the keys (`help key`).",
        "/etc/careful/keys, if this host has one there",
        metavar="DIR|none",
        value="directory, or `none`",
    )
    seal: str | None = _option(
        "auth: frames prove who sent them; encrypt: also hides their contents; off. For all "
        "peers, or for HOST; may be repeated. Needs keys. Both ends must use the same mode.",
        "off",
        "off",
        metavar="MODE[@HOST]",
        value="`off`, `auth` or `encrypt`; `MODE@HOST` of one peer; commas between",
        repeated=True,
    )
    sync_ms: int | None = _number(
        "After this silence, ask a peer what it received.",
        1,
        3600 * 1000,
        200,
        shown="200ms",
        live=True,
    )
    stall_ms: int | None = _number(
        "After this silence, drop the peer.", 1, 3600 * 1000, 30_000, shown="30s", live=True
    )
    repair: str | None = _choice(
        "Send lost frames again; off: a lost frame ends the epoch (P2).",
        *("on", "off"),
        enum=("careful_repair", "CAREFUL_REPAIR_"),
    )
    file_writes: str | None = _choice(
        "Threads that copy arriving data into the page cache: the engine's, or the kernel's "
        "workers on other CPUs (`help performance`).",
        *("engine", "workers"),
        enum=("careful_file_writes", "CAREFUL_FILE_WRITES_"),
    )
    cpu: int | None = _number(
        "CPU to run carefuld on.", 0, 4095, metavar="N", value="CPU number", of_daemon=True
    )

    def over(self, defaults: UpOptions) -> UpOptions:
        """Returns these options, with `defaults` for those that are None."""
        return replace(defaults, **{k: v for k, v in vars(self).items() if v is not None})

    def agree(self) -> None:
        """Checks that the options agree, and that the group exists on this host.

        Raises CarefulError in the words of `up`.
        """
        if (self.queues or 1) > 1 and self.queue:
            raise CarefulError(
                errno.EINVAL,
                "selects one queue, --queues counts several: use one of them",
                "--queue",
            )
        if self.group is not None:
            try:
                grp.getgrnam(self.group)
            except KeyError:
                text = f"--group {self.group}"
                raise CarefulError(errno.EINVAL, "there is no such group", text) from None


#: Name -> declaration, in the order of `up --help`.
OPTIONS: dict[str, Option] = {one.name: one.metadata["option"] for one in fields(UpOptions)}
#: carefuld's defaults (`carefuld --help`). No name: see --name; no CPU: any CPU.
DEFAULTS = UpOptions(**{name: one.default for name, one in OPTIONS.items()})  # type: ignore[arg-type]

_TYPES = {
    name: next(one for one in get_args(hint) if one is not type(None))
    for name, hint in get_type_hints(UpOptions).items()
}
_WORDS = {int: "a whole number", str: "a text in quotes", bool: "true or false"}


def kind(name: str) -> type:
    """Returns the type of an option: int, bool, str, or tuple for several texts."""
    hint = _TYPES[name]
    return tuple if isinstance(hint, types.GenericAlias) else hint


def takes(name: str) -> str:
    """Returns the type of an option in words."""
    return _WORDS.get(kind(name), 'a list of texts, ["A", "B"]')


def matches(name: str, value: object) -> bool:
    """Reports whether a value from a file or a program has an option's type."""
    if kind(name) is tuple:
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    return type(value) is kind(name)


def bad_seal(text: str) -> str:
    """Returns the fault of one word of `seal`, or ""."""
    mode, at, host = text.partition("@")
    if mode in SEALS and bool(at) == bool(host):
        return ""
    return f"{text!r} must be {', '.join(SEALS[:-1])} or {SEALS[-1]}, or such a word and @HOST"


def refused(name: str, value: Any) -> str:
    """Returns why `up` would refuse an option's value on any host, or ""."""
    option = OPTIONS[name]
    if option.choices and value not in option.choices:
        return f"must be one of {', '.join(option.choices)}"
    if option.most and not option.least <= value <= option.most:
        return f"must be a number from {option.least} to {option.most}"
    if option.power_of_two and value.bit_count() != 1:
        return "must be a power of two"
    texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    if any("\0" in text for text in texts):
        return "must not contain a NUL character"
    if name == "name" and len(os.fsencode(value)) > _NAME_BYTES_MAX:
        return f"must be at most {_NAME_BYTES_MAX} bytes long"
    if name in ("keys", "group") and not value:
        return "must not be empty"
    if name == "seal":
        return next(filter(None, map(bad_seal, value.split(","))), "")
    if name == "export":
        try:
            for text in texts:
                exports.parse(text, "")
        except CarefulError as error:
            return str(error)
    return ""


def word(name: str) -> str:
    """Returns an option's name on carefuld's command line."""
    return "--" + name.replace("_", "-")


def flag(name: str) -> str:
    """Returns an option's name on carefulctl's command line, where values have their own unit."""
    return word(name).removesuffix("-us").removesuffix("-ms").removesuffix("-bytes")


def table() -> str:
    """Returns the manual's table of keys of careful.toml, in Markdown."""
    return "\n".join(
        [
            "| key of `[up]` and `[instance.NAME]` | value | `up` option |",
            "|---|---|---|",
            *(f"| `{name}` | {_values(name)} | `{flag(name)}` |" for name in OPTIONS),
            "| `tune` | `auto`, `off` | `--tune` |",
        ]
    )


def _values(name: str) -> str:
    option = OPTIONS[name]
    units = {"_us": "microseconds", "_ms": "milliseconds"}
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    if kind(name) is bool:
        return "true, false"
    return option.value or units.get(name[-3:], "")
