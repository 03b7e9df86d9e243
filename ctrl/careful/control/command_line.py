"""Writes the options of `up` as carefuld's command line, and reads them from a running carefuld.

The options of a running instance come from its command line, or from instances.py if they were
changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from careful.control.exports import parse
from careful.control.up_options import DEFAULTS, OPTIONS, UpOptions, flag, kind, word
from careful.jsonout import Json
from careful.units import shown_bytes


def words(options: UpOptions) -> list[str]:
    """Returns the arguments that start carefuld."""
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
    """Splits a command line into options of `up`, as (field, value), and other words.

    Like getopt_long(): `--option value`, `--option=value`, and abbreviated names.
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
    """Returns the options of `up` in a command line; ignores all others."""
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
    """Returns the words of a command line that are not options of `up`."""
    return _split(argv)[1]


def _effective(options: UpOptions, instance: str) -> UpOptions:
    whole = options.over(replace(DEFAULTS, name=instance))
    exports = (str(parse(one)) for one in whole.export or ())
    return replace(whole, export=tuple(sorted(exports)))


def _shown(name: str, value: object) -> str:
    if isinstance(value, int) and name.endswith(("_bytes", "_us", "_ms")):
        unit = name.rpartition("_")[2].replace("us", "µs")
        return shown_bytes(value) if unit == "bytes" else f"{value} {unit}"
    if isinstance(value, tuple):
        return " ".join(value) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def differences(asked: UpOptions, running: UpOptions, instance: str) -> dict[str, str]:
    """Returns a phrase for each option, by field, that a running instance has otherwise."""
    asked, running = _effective(asked, instance), _effective(running, instance)
    found = {}
    for one in fields(UpOptions):
        now, wanted = getattr(running, one.name), getattr(asked, one.name)
        if now != wanted:
            present, asked_for = _shown(one.name, now), _shown(one.name, wanted)
            found[one.name] = f"{flag(one.name)} is {present}, not {asked_for}"
    return found
