"""The options of `up` as carefuld's command line, and those of a running carefuld read back.

A running instance is asked what it was started with by its own command line, or, where it was
given other options since, by what instances.py remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, get_type_hints

from careful.control.config import DEFAULTS, UpOptions
from careful.control.exports import parse


def _option(field: str) -> str:
    """What a field of UpOptions is called on a command line."""
    return "--" + field.replace("_", "-")


def words(options: UpOptions) -> list[str]:
    """What carefuld is started with."""
    argv: list[str] = []
    for one in fields(options):
        value = getattr(options, one.name)
        if value is None or value is False:
            continue
        if value is True:
            argv.append(_option(one.name))
        else:
            for part in value if isinstance(value, tuple) else (value,):
                argv += [_option(one.name), str(part)]
    return argv


def read(argv: Sequence[str]) -> UpOptions:
    """The options among a command line; what is no option of `up` is passed over."""
    found: dict[str, Any] = {}
    hints = get_type_hints(UpOptions)
    names = {_option(one): one for one in hints}
    for index, word in enumerate(argv):
        name, following = names.get(word), argv[index + 1] if index + 1 < len(argv) else ""
        if name is None:
            continue
        if hints[name] == bool | None:
            found[name] = True
        elif hints[name] == int | None:
            found[name] = int(following)
        elif hints[name] == str | None:
            found[name] = following
        else:
            found[name] = (*found.get(name, ()), following)
    return UpOptions(**found)


def without_options(argv: Sequence[str]) -> list[str]:
    """What stands in a command line beside options of `up`."""
    hints = get_type_hints(UpOptions)
    names = {_option(one): one for one in hints}
    found, is_value = [], False
    for word in argv:
        if is_value:
            is_value = False
        elif word in names:
            is_value = hints[names[word]] != bool | None
        else:
            found.append(word)
    return found


def _effective(options: UpOptions, instance: str) -> UpOptions:
    """With carefuld's defaults in place."""
    whole = options.over(replace(DEFAULTS, name=instance))
    exports = (str(parse(one)) for one in whole.export or ())
    return replace(whole, export=tuple(sorted(exports)))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(value) or "none"
    return {None: "none", True: "yes", False: "no"}.get(value, str(value))  # type: ignore[call-overload, no-any-return]


def differences(asked: UpOptions, running: UpOptions, instance: str) -> dict[str, str]:
    """In which options, by their field, an instance runs otherwise than asked: a phrase of each."""
    asked, running = _effective(asked, instance), _effective(running, instance)
    found = {}
    for one in fields(UpOptions):
        now, wanted = getattr(running, one.name), getattr(asked, one.name)
        if now != wanted:
            found[one.name] = f"{_option(one.name)} is {_shown(now)}, not {_shown(wanted)}"
    return found
