"""Writes the options of `up` as carefuld's command line, and reads them from a running carefuld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from careful.control.options.exports import parse
from careful.control.options.up_options import DEFAULTS, OPTIONS, UpOptions, flag, kind, word
from careful.jsonout import Json
from careful.units import shown_bytes


def words(options: UpOptions) -> list[str]:
    """Returns the arguments that start carefuld."""
    argv: list[str] = []
    for option in fields(options):
        value = getattr(options, option.name)
        if value is None or value is False:
            continue
        if value is True:
            argv.append(word(option.name))
        else:
            for item in value if isinstance(value, tuple) else (value,):
                argv += [word(option.name), str(item)]
    return argv


def _split(argv: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Splits a command line into options of `up`, as (field, value), and other words.

    Like getopt_long(): `--option value`, `--option=value`, and abbreviated names.
    """
    names = {word(argument): argument for argument in OPTIONS}
    options, others, rest = [], [], iter(argv)
    for argument in rest:
        option, equals, value = argument.partition("=")
        abbreviated = [
            name for full, name in names.items() if full.startswith(option) and len(option) > 2
        ]
        if not (name := names.get(option) or (abbreviated[0] if len(abbreviated) == 1 else "")):
            others.append(argument)
        elif equals or kind(name) is bool:
            options.append((name, value))
        else:
            options.append((name, next(rest, "")))
    return options, others


def read(argv: Sequence[str]) -> UpOptions:
    """Returns the options of `up` in a command line; ignores all others."""
    values: Json = {}
    for name, value in _split(argv)[0]:
        if kind(name) is bool:
            values[name] = True
        elif kind(name) is int:
            values[name] = int(value)
        elif kind(name) is str:
            values[name] = value
        else:
            values[name] = (*values.get(name, ()), value)
    return UpOptions(**values)


def without_options(argv: Sequence[str]) -> list[str]:
    """Returns the words of a command line that are not options of `up`."""
    return _split(argv)[1]


def _effective(options: UpOptions) -> UpOptions:
    whole = options.over(DEFAULTS)
    exports = (str(parse(export)) for export in whole.export or ())
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


def differences(asked: UpOptions, running: UpOptions) -> dict[str, str]:
    """Returns a phrase, by field, for each option that differs in the running instance."""
    asked, running = _effective(asked), _effective(running)
    phrases = {}
    for option in fields(UpOptions):
        now, wanted = getattr(running, option.name), getattr(asked, option.name)
        if now != wanted:
            shown, wanted_text = _shown(option.name, now), _shown(option.name, wanted)
            phrases[option.name] = f"{flag(option.name)} is {shown}, not {wanted_text}"
    return phrases
