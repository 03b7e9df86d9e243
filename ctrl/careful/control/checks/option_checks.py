"""Checks of `up` that need no interface: options that contradict each other, missing files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from careful.control.checks.check_result import FAIL, Finding, fail, ok, unknown, warn
from careful.control.options import exports, keys
from careful.control.options.config import Config
from careful.control.options.up_options import UpOptions
from careful.errors import CarefulError

#: Advice for options and keys that are missing or wrong.
CHANGE = "change it in careful.toml: carefulctl help careful.toml"
_MAKE = "on each host carefulctl key new, and carefulctl key trust HOST KEY for each other"
_ANEW = "repair that file, or make keys elsewhere: carefulctl key new --keys DIR, and up --keys DIR"


def tried(check: str, act: Callable[[], str], advice: str) -> Finding:
    """Runs a step of `up` that changes nothing, and returns its result as a finding."""
    try:
        return ok(check, act())
    except CarefulError as error:
        return fail(check, str(error), advice)


def _exports(options: UpOptions, address: Callable[[str], str]) -> str:
    directories = exports.check(options.export, address)
    return ", ".join(directories or ()) or "none in the configuration"


def _open_to_all(options: UpOptions, address: Callable[[str], str]) -> str:
    """Returns an export that any peer may write, or ""; called if sessions need no key."""
    with suppress(CarefulError):  # `named` reports bad exports
        parsed = map(exports.parse, exports.check(options.export, address) or ())
        return next(
            (export.path for export in parsed if export.writable and not options.insecure), ""
        )
    return ""


def keyed(options: UpOptions, address: Callable[[str], str] = exports.numeric) -> Finding:
    """Reports whether carefuld would accept the keys that `up` gives it."""
    directory = keys.in_effect(options).keys
    sealed = options.seal not in (None, "off")
    try:
        if directory is None:
            if sealed:
                text = "--seal needs keys: carefulctl key new, then --keys DIR"
                return fail("keys", text, _MAKE)
            if path := _open_to_all(options, address):
                text = f"--export {path}:rw: anyone who can send to the port could write: "
                text += "make keys (carefulctl key new), or add --insecure"
                return fail("keys", text, _MAKE)
            return ok("keys", "none: anyone who can send to the port gets a session")
        place = keys.Keys(Path(directory))
        with suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(f"{place.directory}/.").close()
        text = f"{place.directory}: {place.check()}"
    except CarefulError as error:
        return fail("keys", str(error), _ANEW)
    except PermissionError:
        return unknown("keys", f"only root can see {directory}")
    if not place.trusted():
        return warn("keys", text, "no host gets a session: carefulctl key trust HOST KEY")
    return ok("keys", text)


def named(options: UpOptions, address: Callable[[str], str]) -> Iterator[Finding]:
    """Checks that options agree and that the files and hosts that they name exist.

    address: resolves a host's name.
    """
    try:
        options.agree()
        for mode in (options.seal or "").split(","):
            if host := mode.partition("@")[2]:
                address(host)
    except CarefulError as error:
        yield fail("options", str(error), CHANGE)
    advice = "up --export DIR, or export in careful.toml: carefulctl help careful.toml"
    yield tried("exports", lambda: _exports(options, address), advice)
    yield keyed(options, address)


def refused(config: Config) -> dict[str, list[Finding]]:
    """Returns the findings for which `up` would refuse options, by table of the configuration."""

    def failures(options: UpOptions) -> list[Finding]:
        findings = named(options, lambda host: config.resolve(host).ip)
        return [finding for finding in findings if finding.state == FAIL]

    of_all = failures(config.up)
    tables = {"[up]": of_all}
    for name in config.instances:
        own = [finding for finding in failures(config.options(name)) if finding not in of_all]
        tables[f"[instance.{name}]"] = own
    return {table: findings for table, findings in tables.items() if findings}
