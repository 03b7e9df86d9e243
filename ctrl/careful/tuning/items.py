"""What a controller sets of a path: items, each of a message class, and the values that they take.

Owns the items' numbers: a class's plan, its least write to a file here, its least kick.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from careful import plan
from careful.plan import CLASS_COUNT, U32_MAX, Plan

#: Plans have the numbers of their classes; from here on stores' thresholds, and netTx's.
STORE = CLASS_COUNT
NET_TX = 2 * CLASS_COUNT
ITEM_COUNT = 3 * CLASS_COUNT


@dataclass(frozen=True)
class Pulse:
    """A class's least write to a file, bytes (the map's minpulse of `store`)."""

    store_bytes: int

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"store_bytes": self.store_bytes}


@dataclass(frozen=True)
class Kick:
    """A class's least kick, bytes (the map's minpulse of `net_tx`)."""

    net_tx_bytes: int

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"net_tx_bytes": self.net_tx_bytes}


Value = Plan | Pulse | Kick


def value_of(item: int, data: dict[str, int]) -> Value:
    """What as_dict() made of an item's value; ValueError for what no map holds."""
    if not all(type(one) is int and 0 <= one <= U32_MAX for one in data.values()):
        raise ValueError(f"{data} are no values of a map")
    if item < STORE:
        return Plan(**data)
    return Pulse(**data) if item < NET_TX else Kick(**data)


def class_bytes(item: int) -> int:
    """The largest message of an item's class, bytes: the one it is planned for."""
    return plan.class_bytes(item % CLASS_COUNT)


def sink_of(item: int) -> str:
    """The sink whose threshold an item is; "": it is a plan."""
    return ("", "store", "net_tx")[item // CLASS_COUNT]


def is_stored(item: int) -> bool:
    """Whether it is of messages that are stored here; the others are of those that are sent."""
    return STORE <= item < NET_TX


def told_by(item: int) -> int:
    """The item whose messages tell of it: a kick's are those that a plan cuts."""
    return item - NET_TX if item >= NET_TX else item
