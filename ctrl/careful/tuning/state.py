"""The stored state of each path, as JSON.

The state is stored next to the instance's socket, and in the state directory, which outlives the
instance. Owns the schema. A state with other addresses, another MTU or mode is another path's, and
is dropped. Times are of the monotonic clock; after a reboot the wall clock converts them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from careful.control.instance.records import InEffect
from careful.control.state import kept_path
from careful.control.state.state_dir import StateDir
from careful.jsonout import Json, write
from careful.plan import CLASS_COUNT
from careful.tuning.settings import (
    ITEM_COUNT,
    NET_TX,
    STORE,
    Value,
    class_bytes,
    measured_item,
    sink_of,
    value_of,
)

SCHEMA = 2
#: Number of newest decisions that are kept; the last A/B of each item is always kept.
DECISIONS_MAX = 20
#: Least time between two changes on a steady path, seconds.
CHANGE_EVERY_S = 600.0
#: Wait after an answer to a changed path, and its maximum, seconds. It doubles each time.
HOLD_S, HOLD_S_MAX = 10.0, 600.0
#: The parts of an instance's operation (status.in_effect) that define a path.
USED = ("driver", "queue", "mtu_bytes", "xdp_mode", "zerocopy", "window_buffers", "wait")
#: Most paths that are stored; those measured longest ago are dropped.
PATHS_MAX = 256


@dataclass(frozen=True)
class Pair:
    """An item's values before and after a change."""

    before: Value
    after: Value


@dataclass(frozen=True)
class Tried:
    """A search for the best way to send a class's messages.

    at_s: when it ended; ways_count: ways that it tried; found: it gave the value in effect.
    """

    at_s: float
    ways_count: int
    found: bool


@dataclass
class PathState:
    """The state of one path.

    `identity`: addresses, instance and its use of the device; `figures`: the measurement, None
    before the first; `measured_at`, `changed_at`: seconds of the monotonic clock; `reason`: why it
    was measured; `confirmed_at`: when a quick measurement last confirmed the figures; `carefuld`:
    the process that last used them; `plans`: the value decided for an item; `unverified`: changes
    in effect that no A/B has confirmed; `refuted`: values that an A/B undid; `on_trial`: changes of
    an A/B under way; `put_back`: values to restore after a search or exploration; `tried`: results
    of searches, by class; `hold_s`, `held_until`: for how long, and until when, a change of the
    path is not answered; `store`: the known store (StoreWatch.as_dict()); `decisions`: newest last.
    """

    identity: Json
    figures: Json | None = None
    measured_at: float = 0.0
    reason: str = ""
    changed_at: float | None = None
    confirmed_at: float | None = None
    carefuld: str = ""
    plans: dict[int, Value] = field(default_factory=dict)
    unverified: dict[int, Pair] = field(default_factory=dict)
    refuted: dict[int, list[Value]] = field(default_factory=dict)
    on_trial: dict[int, Pair] = field(default_factory=dict)
    put_back: dict[int, Value] = field(default_factory=dict)
    tried: dict[int, Tried] = field(default_factory=dict)
    hold_s: float = 0.0
    held_until: float | None = None
    store: Json | None = None
    decisions: list[Json] = field(default_factory=list)

    def note(
        self,
        at_s: float,
        what: str,
        pairs: Mapping[int, Pair],
        why: str,
        evidence: str = "",
        figures: Mapping[int, Json] | None = None,
    ) -> Json:
        """Adds a decision. evidence: the key of its figures: `prediction`, `trying` or `ab`."""
        rows = [
            {
                "class": item % CLASS_COUNT,
                **({"sink": sink_of(item)} if sink_of(item) else {}),
                **({"by": "trying"} if self._was_searched(item) else {}),
                "message_bytes_max": class_bytes(item),
                "before": pair.before.as_dict(),
                "after": pair.after.as_dict(),
                **({evidence: figures[item]} if figures else {}),
            }
            for item, pair in pairs.items()
        ]
        decision = {"at_s": at_s, "what": what, "why": why, "classes": rows}
        if what == "not measured" and self.decisions and self.decisions[-1]["what"] == what:
            del self.decisions[-1]
        self.keep(decision)
        return decision

    def keep(self, decision: Json) -> None:
        """Stores a decision and drops the oldest ones, except each item's last A/B."""
        stored: list[Json] = []
        items: set[tuple[int, str]] = set()
        for age, entry in enumerate(reversed([*self.decisions, decision])):
            tried = {
                (row["class"], row.get("sink", ""))
                for row in entry.get("classes", [])
                if "ab" in row
            }
            if age < DECISIONS_MAX or tried - items:
                stored.append(entry)
            items |= tried
        self.decisions = stored[::-1]

    def differs(self, used: InEffect | None, peer_frame_bytes: int) -> list[str]:
        """Returns the names of the properties that differ on the path now, except the XDP mode.

        used: the instance's operation, None if unknown; peer_frame_bytes: 0 if unknown.
        """
        names = [name for name in USED if used and name != "xdp_mode"]
        now = {name: getattr(used, name) for name in names}
        if peer_frame_bytes:
            now["peer_frame_bytes"] = peer_frame_bytes
        return [name for name, value in now.items() if self.identity.get(name, value) != value]

    def may_answer(self, now: float) -> bool:
        return self.held_until is None or now >= self.held_until

    def hold(self, now: float) -> None:
        """Records that a changed path was answered, so that the next answer must wait."""
        calm = self.held_until is None or now - self.held_until > CHANGE_EVERY_S
        self.hold_s = HOLD_S if calm else min(2 * self.hold_s, HOLD_S_MAX)
        self.held_until = now + self.hold_s

    def _was_searched(self, item: int) -> bool:
        search = self.tried.get(measured_item(item))
        return search is not None and search.ways_count > 0

    def found_by_search(self, item: int) -> bool:
        """Reports whether a search found the item's value."""
        search = self.tried.get(measured_item(item))
        return search is not None and search.found

    def refute(self, undone: dict[int, Pair]) -> None:
        """Records changes that an A/B undid, so that they are not proposed again."""
        for item in [item for item in undone if not self.found_by_search(item)]:
            self.refuted.setdefault(item, []).append(undone[item].after)
        for index in {measured_item(item) for item in undone if self.found_by_search(item)}:
            self.tried[index] = replace(self.tried[index], found=False)

    def is_refuted(self, index: int) -> bool:
        """Reports whether the last A/B of a class's prediction ended with "not held"."""
        if not self.refuted.get(index):
            return False
        for decision in reversed(self.decisions):
            for row in decision["classes"]:
                if row["class"] == index and "ab" in row and not row.get("sink"):
                    return bool(row["ab"]["verdict"] == "not held")
        return False

    def as_dict(self) -> Json:
        return {
            **vars(self),
            "plans": _values_out(self.plans),
            "unverified": _pairs_out(self.unverified),
            "refuted": {
                str(index): [entry.as_dict() for entry in plans]
                for index, plans in self.refuted.items()
            },
            "on_trial": _pairs_out(self.on_trial),
            "put_back": _values_out(self.put_back),
            "tried": {str(index): asdict(entry) for index, entry in self.tried.items()},
        }

    @classmethod
    def from_dict(cls, data: Json) -> PathState:
        """Reads as_dict(). Raises ValueError, TypeError or KeyError for anything else."""
        values = {"put_back": {}, "tried": {}, **data}
        _check(values)
        for name in ("plans", "put_back"):
            values[name] = _values_in(values[name])
        values["tried"] = {int(index): _tried(entry) for index, entry in values["tried"].items()}
        values["unverified"] = _pairs_in(values["unverified"])
        values["on_trial"] = _pairs_in(values["on_trial"])
        values["refuted"] = {
            int(index): [value_of(int(index), entry) for entry in plans]
            for index, plans in values["refuted"].items()
        }
        return cls(**values)

    def shift(self, seconds: float, now: float) -> None:
        """Converts times to the clock of this boot; none becomes later than now.

        After the wall clock was set back, all times seem recent. So `carefuld` is cleared, which
        makes the controller confirm the figures.
        """
        self.carefuld = ""
        self.measured_at = min(self.measured_at + seconds, now)
        if self.changed_at is not None:
            self.changed_at = min(self.changed_at + seconds, now)
        if self.confirmed_at is not None:
            self.confirmed_at = min(self.confirmed_at + seconds, now)
        self.held_until = None
        self.tried = {
            index: replace(entry, at_s=min(entry.at_s + seconds, now))
            for index, entry in self.tried.items()
        }
        for entry in self.decisions:
            entry["at_s"] = min(entry["at_s"] + seconds, now)


def _check(data: Json) -> None:
    whole = isinstance(data["identity"], dict) and isinstance(data["decisions"], list)
    known = (data["figures"], data.get("store"))
    whole = whole and all(isinstance(entry, (dict, type(None))) for entry in known)
    whole = whole and all(isinstance(data[name], str) for name in ("reason", "carefuld"))
    whole = whole and all(_is_time(data[name]) for name in ("measured_at", "hold_s"))
    times = (data[name] for name in ("changed_at", "confirmed_at", "held_until"))
    whole = whole and all(entry is None or _is_time(entry) for entry in times)
    if not whole or not all(_is_decision(entry) for entry in data["decisions"]):
        raise ValueError


def _tried(data: Json) -> Tried:
    if not _is_time(data["at_s"]):
        raise ValueError
    return Tried(float(data["at_s"]), int(data["ways_count"]), bool(data["found"]))


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _is_decision(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and _is_time(entry["at_s"])
        and isinstance(entry["what"], str)
        and isinstance(entry["why"], str)
        and all({"class", "before", "after"} <= row.keys() for row in entry["classes"])
    )


def _clock() -> Json:
    """Returns the offset of this boot's monotonic clock from the wall clock."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"boot": boot, "wall_less_monotonic_s": time.time() - time.monotonic()}


def _values_out(values: Mapping[int, Value]) -> Json:
    return {str(item): value.as_dict() for item, value in values.items()}


def _values_in(data: Json) -> dict[int, Value]:
    if not all(0 <= int(item) < ITEM_COUNT for item in data):
        raise ValueError
    return {int(item): value_of(int(item), entry) for item, entry in data.items()}


def _pairs_out(pairs: dict[int, Pair]) -> Json:
    return {str(index): asdict(pair) for index, pair in pairs.items()}


def _pairs_in(data: Json) -> dict[int, Pair]:
    return {
        int(index): Pair(value_of(int(index), pair["before"]), value_of(int(index), pair["after"]))
        for index, pair in data.items()
    }


def _paths(data: Json) -> dict[str, PathState]:
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        if data["schema"] != SCHEMA:
            return {}
        stored = dict(data["paths"])
        paths = {str(peer): PathState.from_dict(state) for peer, state in stored.items()}
        then, now = data["clock"], _clock()
        if then["boot"] != now["boot"]:
            apart = float(then["wall_less_monotonic_s"]) - now["wall_less_monotonic_s"]
            for state in paths.values():
                state.shift(apart, time.monotonic())
        return paths
    return {}


class Store:
    """The states of an instance's paths, by peer address, and the values set by hand.

    Callers that change values set by hand must hold tune_entry.one_writer.

    Args:
        directory: the instance's directory; `down` removes it.
        lasting: state directory that outlives the instance; None: there is none.
    """

    def __init__(self, directory: Path, lasting: StateDir | None = None) -> None:
        self.path = directory / "tuning.json"
        self._pins = directory / "tuning-by-hand.json"
        self._lasting, self._name = lasting, f"tuning.{directory.name}.json"

    def load(self) -> dict[str, PathState]:
        """Returns the stored states; none without a file, or if another version wrote it."""
        with suppress(OSError, ValueError):
            if states := _paths(json.loads(self.path.read_text())):
                return states
        return _paths(self._lasting.read(self._name)) if self._lasting else {}

    def order(self, ip: str) -> Json | None:
        """Returns pathchar's newest measurement of a peer."""
        return kept_path.newest(self._lasting, ip) if self._lasting else None

    def of(self, peer: str, identity: Json) -> PathState:
        """Returns the stored state if the path is the same, else a new state.

        A change of XDP mode keeps the state, which must then be confirmed.
        """
        state = self.load().get(peer)
        if state is None or state.identity | {"xdp_mode": ""} != identity | {"xdp_mode": ""}:
            return PathState(identity)
        if state.identity != identity:
            state.identity, state.carefuld = identity, ""
        return state

    def save(self, peer: str, state: PathState) -> None:
        """Stores a path's state; ignores errors such as a full disk."""
        paths = {**self.load(), peer: state}
        newest = sorted(paths, key=lambda name: paths[name].measured_at)[-PATHS_MAX:]
        states = {name: paths[name].as_dict() for name in {*newest, peer}}
        whole = {"schema": SCHEMA, "clock": _clock(), "paths": states}
        if self._lasting:
            self._lasting.write(self._name, whole)
        with suppress(OSError):
            write(self.path, json.dumps(whole) + "\n")

    def by_hand(self, peer: str, in_effect: Sequence[Value]) -> frozenset[int]:
        """Returns items that were set by hand for a peer, or for all, and are still in effect.

        in_effect: the values of all items. If a peer returns in another slot, the slot has the
        values of new peers: the peer's own settings have ended.
        """
        pins = self._read_pins()
        given = (*pins.get("", {}).items(), *pins.get(peer, {}).items())
        return frozenset(item for item, value in given if in_effect[item] == value)

    def pin(self, peers: Iterable[str], values: Mapping[int, Value]) -> None:
        """Records values set by hand; peers: addresses, none for all."""
        pins = self._read_pins()
        for peer in list(peers) or [""]:
            pins[peer] = {**pins.get(peer, {}), **values}
        self._write_pins(pins)

    def unpin(self, peer: str, in_effect: Sequence[Value]) -> None:
        """Forgets values that are no longer in effect, so that they do not count if they recur."""
        pins = self._read_pins()
        pinned = pins.get(peer, {})
        pins[peer] = {item: value for item, value in pinned.items() if in_effect[item] == value}
        if pins[peer] != pinned:
            self._write_pins(pins)

    def release(self, classes: Iterable[int]) -> None:
        """Lets the controller change these classes again, for every peer: plans and thresholds."""
        given = {index + first for index in classes for first in (0, STORE, NET_TX)}
        pins = self._read_pins()
        for pinned in pins.values():
            for item in pinned.keys() & given:
                del pinned[item]
        self._write_pins(pins)

    def _read_pins(self) -> dict[str, dict[int, Value]]:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            data = json.loads(self._pins.read_text())
            return {str(peer): _values_in(items) for peer, items in data.items()}
        return {}

    def _write_pins(self, pins: Mapping[str, Mapping[int, Value]]) -> None:
        data = {peer: _values_out(values) for peer, values in pins.items() if values}
        write(self._pins, json.dumps(data) + "\n")
