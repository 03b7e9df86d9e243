"""What the controller keeps of a path: atomically written JSON beside the instance's socket.

Owns the schema, and that what was kept of another path (addresses, MTU, mode) is dropped. It
goes with the instance: `down` removes it. Calls model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from careful.model.tunemap import CLASS_COUNT, TunePlan
from careful.report.jsonout import write

SCHEMA = 1
#: Decisions that are kept, the newest last.
DECISIONS_MAX = 20


@dataclass(frozen=True)
class Pair:
    """A class's plan before a change, and after it."""

    before: TunePlan
    after: TunePlan


@dataclass
class PathState:
    """What is known of one path.

    identity: what makes it this path; figures: of its measurement, None before the first;
    measured_at, changed_at: when, seconds of the monotonic clock; reason: why it was measured;
    unverified: changes in effect that no A/B has confirmed; refuted: plans that an A/B undid;
    on_trial: the classes of an A/B under way; hold_s, held_until: how long a change of the path
    goes unanswered after the last, and until when; decisions: the last, newest last.
    """

    identity: dict[str, Any]
    figures: dict[str, Any] | None = None
    measured_at: float = 0.0
    reason: str = ""
    changed_at: float | None = None
    unverified: dict[int, Pair] = field(default_factory=dict)
    refuted: dict[int, list[TunePlan]] = field(default_factory=dict)
    on_trial: dict[int, Pair] = field(default_factory=dict)
    hold_s: float = 0.0
    held_until: float | None = None
    decisions: list[dict[str, Any]] = field(default_factory=list)

    def note(self, decision: dict[str, Any]) -> None:
        """Keep a decision; the oldest goes."""
        self.decisions = [*self.decisions, decision][-DECISIONS_MAX:]

    def as_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {
            **vars(self),
            "unverified": _pairs_out(self.unverified),
            "refuted": {
                str(index): [one.as_dict() for one in plans]
                for index, plans in self.refuted.items()
            },
            "on_trial": _pairs_out(self.on_trial),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PathState:
        """Raises ValueError, TypeError or KeyError for what as_dict() did not make."""
        kept = dict(data)
        kept["unverified"] = _pairs_in(kept["unverified"])
        kept["on_trial"] = _pairs_in(kept["on_trial"])
        kept["refuted"] = {
            int(index): [TunePlan(**one) for one in plans]
            for index, plans in kept["refuted"].items()
        }
        return cls(**kept)


def _pairs_out(pairs: dict[int, Pair]) -> dict[str, Any]:
    return {str(index): asdict(pair) for index, pair in pairs.items()}


def _pairs_in(data: dict[str, Any]) -> dict[int, Pair]:
    return {
        int(index): Pair(TunePlan(**pair["before"]), TunePlan(**pair["after"]))
        for index, pair in data.items()
    }


class Store:
    """The states of an instance's paths, by the peer's address.

    Args:
        directory: of the instance.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "tuning.json"
        self._pins = directory / "tuning-by-hand.json"

    def load(self) -> dict[str, PathState]:
        """What is kept; nothing where there is no file, or one that this version did not write."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            data = json.loads(self.path.read_text())
            if data["schema"] == SCHEMA:
                return {peer: PathState.from_dict(one) for peer, one in dict(data["paths"]).items()}
        return {}

    def of(self, peer: str, identity: dict[str, Any]) -> PathState:
        """The state of a path: what is kept, if it is of this very path; else a new one."""
        kept = self.load().get(peer)
        return kept if kept and kept.identity == identity else PathState(identity)

    def save(self, peer: str, state: PathState) -> None:
        """Keep it, beside those of other paths."""
        paths = {**self.load(), peer: state}
        whole = {"schema": SCHEMA, "paths": {name: one.as_dict() for name, one in paths.items()}}
        write(self.path, json.dumps(whole, indent=1) + "\n")

    def by_hand(self, peer: str) -> frozenset[int]:
        """Classes that were set by hand for a peer, or for all."""
        pins = self._read_pins()
        return frozenset(pins.get("", set()) | pins.get(peer, set()))

    def pin(self, peers: Iterable[str], classes: Iterable[int]) -> None:
        """Classes that were set by hand stay; peers: addresses, none for all."""
        pins = self._read_pins()
        for peer in list(peers) or [""]:
            pins[peer] = pins.get(peer, set()) | set(classes)
        self._write_pins(pins)

    def release(self, classes: Iterable[int]) -> None:
        """Classes are the controller's again, for every peer."""
        given = set(classes)
        self._write_pins({peer: kept - given for peer, kept in self._read_pins().items()})

    def _read_pins(self) -> dict[str, set[int]]:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            data = json.loads(self._pins.read_text())
            return {
                str(peer): {int(one) for one in classes if 0 <= int(one) < CLASS_COUNT}
                for peer, classes in data.items()
            }
        return {}

    def _write_pins(self, pins: dict[str, set[int]]) -> None:
        kept = {peer: sorted(classes) for peer, classes in pins.items() if classes}
        write(self._pins, json.dumps(kept) + "\n")
