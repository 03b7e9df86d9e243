"""The options of `up` as carefuld's command line, and those of a running carefuld read back.

A running instance is asked what it was started with by its own command line, or, where it was
given other options since, by what instances.py remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from careful.control.exports import parse
from careful.control.up_options import DEFAULTS, OPTIONS, UpOptions, kind, word
from careful.jsonout import Json


def words(options: UpOptions) -> list[str]:
    """What carefuld is started with."""
    argv: list[str] = []
    for one in fields(options):
        value = getattr(options, one.name)
        if value is None or value is False:
            continue
        if value is True:
            argv.append(word(one.name))
        else:
            for part in value if isinstance(value, tuple) else (value,):
                argv += [word(one.name), str(part)]
    return argv


def _split(argv: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the options of `up` in a command line as (field, value), and the other words.

    As getopt_long() reads them: `--option value`, `--option=value`, and names cut short.
    """
    names = {word(one): one for one in OPTIONS}
    found, others, rest = [], [], iter(argv)
    for one in rest:
        option, equals, value = one.partition("=")
        cut = [name for full, name in names.items() if full.startswith(option) and len(option) > 2]
        if not (name := names.get(option) or (cut[0] if len(cut) == 1 else "")):
            others.append(one)
        elif equals or kind(name) is bool:
            found.append((name, value))
        else:
            found.append((name, next(rest, "")))
    return found, others


def read(argv: Sequence[str]) -> UpOptions:
    """The options among a command line; what is no option of `up` is passed over."""
    found: Json = {}
    for name, value in _split(argv)[0]:
        if kind(name) is bool:
            found[name] = True
        elif kind(name) is int:
            found[name] = int(value)
        elif kind(name) is str:
            found[name] = value
        else:
            found[name] = (*found.get(name, ()), value)
    return UpOptions(**found)


def without_options(argv: Sequence[str]) -> list[str]:
    """The words of a command line that are no options of `up`."""
    return _split(argv)[1]


def _effective(options: UpOptions, instance: str) -> UpOptions:
    whole = options.over(replace(DEFAULTS, name=instance))
    exports = (str(parse(one)) for one in whole.export or ())
    return replace(whole, export=tuple(sorted(exports)))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(value) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def differences(asked: UpOptions, running: UpOptions, instance: str) -> dict[str, str]:
    """In which options, by their field, an instance runs otherwise than asked: a phrase of each."""
    asked, running = _effective(asked, instance), _effective(running, instance)
    found = {}
    for one in fields(UpOptions):
        now, wanted = getattr(running, one.name), getattr(asked, one.name)
        if now != wanted:
            found[one.name] = f"{word(one.name)} is {_shown(now)}, not {_shown(wanted)}"
    return found
