"""Parses settings from a file that `plan --classes --json` or `tune show --json` printed."""

from __future__ import annotations

import errno
import json
from dataclasses import fields

from careful.control.plans.tune_entry import SINKS, Setting
from careful.errors import CarefulError
from careful.jsonout import Json
from careful.plan import CLASS_COUNT, U32_MAX, Plan, class_bytes


class _FileError(Exception):
    """The file is malformed."""


def parse(text: str | bytes, origin: str, peer: str | None = None) -> dict[int, Setting]:
    """Returns the classes that a file sets.

    text: the file's contents, JSON; origin: the file's name, for messages; peer: the peer whose
    settings to use, if the file has several. Raises CarefulError: the file is malformed, or a
    setting does not fit the map.
    """
    try:
        settings: dict[int, Setting] = {}
        for row in _rows(json.loads(text), peer):
            index = _number(row, "class", 0, CLASS_COUNT - 1)
            if index in settings:
                raise _FileError(f"class {index} appears twice")
            settings[index] = _setting(row, index)
        return settings
    except (ValueError, RecursionError) as why:
        text = f"not JSON from `plan --classes --json` or `tune show --json`: {why}"
        raise CarefulError(errno.EINVAL, text, origin) from None
    except _FileError as why:
        raise CarefulError(errno.EINVAL, str(why), origin) from None


def _rows(whole: object, peer: str | None) -> list[Json]:
    if isinstance(whole, dict) and isinstance(peers := whole.get("peers"), list):
        named = {
            str(entry["peer"]): entry
            for entry in peers
            if isinstance(entry, dict) and "peer" in entry
        }
        if peer is None and len(named) != 1:
            raise _FileError(
                f"the file has settings of {', '.join(named)}: choose a peer with --of"
                if named
                else "the file has no peer's settings"
            )
        whole = next(iter(named.values())) if peer is None else named.get(peer)
        if whole is None:
            raise _FileError(
                f"the file has no settings of {peer}; it has those of: {', '.join(named) or 'none'}"
            )
    elif peer is not None:
        raise _FileError("the file names no peers: omit --of")
    rows = whole.get("classes") if isinstance(whole, dict) else None
    if not isinstance(rows, list) or not rows:
        made_by = "`plan --classes --json` or `tune show --json`"
        raise _FileError(f"the file has no classes: give the output of {made_by}")
    return rows


def _setting(row: dict[str, object], index: int) -> Setting:
    if (most := row.get("message_bytes_max")) != class_bytes(index):
        raise _FileError(
            f"class {index} is for messages up to {class_bytes(index)} bytes, not {most}"
        )
    plan = row.get("plan")
    names = [field.name for field in fields(Plan)]
    least = {"first_bytes": 1}
    pulses = row.get("minpulse_bytes", {})
    if not isinstance(pulses, dict) or not pulses.keys() <= SINKS.keys():
        raise _FileError(f"class {index}: minpulse_bytes is for {', '.join(SINKS)}, not {pulses!r}")
    minpulse = {name: _number(pulses, name, 0, U32_MAX) for name in pulses}
    # Blocks that a stage gathers before it starts (P1 section 4.3) are its sink's pulse.
    if row.get("block_bytes"):
        minpulse.setdefault("store", _number(row, "block_bytes", 1, U32_MAX))
    return Setting(
        Plan(**{name: _number(plan, name, least.get(name, 0), U32_MAX) for name in names}), minpulse
    )


def _number(row: object, name: str, least: int, most: int) -> int:
    value = row.get(name) if isinstance(row, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _FileError(f"{name} is {value!r}: must be a whole number from {least} to {most}")
    return value
