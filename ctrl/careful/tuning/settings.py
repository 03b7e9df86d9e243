"""The items that a controller sets for each message class, and their values.

Owns the items' numbers. A class has three items: plan, smallest write to a file, smallest kick.
"""

from __future__ import annotations

from dataclasses import dataclass

from careful import plan
from careful.plan import CLASS_COUNT, U32_MAX, Plan

#: Plans have the numbers of their classes. Thresholds of the store start at STORE, those of netTx
#: at NET_TX.
STORE = CLASS_COUNT
NET_TX = 2 * CLASS_COUNT
ITEM_COUNT = 3 * CLASS_COUNT


@dataclass(frozen=True)
class Pulse:
    """A class's least write to a file, bytes (the map's minpulse of `store`)."""

    store_bytes: int

    def as_dict(self) -> dict[str, int]:
        return {"store_bytes": self.store_bytes}


@dataclass(frozen=True)
class Kick:
    """A class's least kick, bytes (the map's minpulse of `net_tx`)."""

    net_tx_bytes: int

    def as_dict(self) -> dict[str, int]:
        return {"net_tx_bytes": self.net_tx_bytes}


Value = Plan | Pulse | Kick


def value_of(item: int, data: dict[str, int]) -> Value:
    """Reads an item's value from as_dict(); ValueError if no map can hold it."""
    if not all(type(number) is int and 0 <= number <= U32_MAX for number in data.values()):
        raise ValueError(f"{data}: each value must be a whole number below 2^32")
    if item < STORE:
        return Plan(**data)
    return Pulse(**data) if item < NET_TX else Kick(**data)


def class_bytes(item: int) -> int:
    """Returns the largest message of an item's class, bytes; plans are made for this size."""
    return plan.class_bytes(item % CLASS_COUNT)


def sink_of(item: int) -> str:
    """Returns the sink to which an item's threshold belongs; "": the item is a plan."""
    return ("", "store", "net_tx")[item // CLASS_COUNT]


def is_stored(item: int) -> bool:
    """Reports whether the item concerns messages stored here; other items concern sent messages."""
    return STORE <= item < NET_TX


def measured_item(item: int) -> int:
    """Returns the item whose live latencies measure this item: the plan, for a kick."""
    return item - NET_TX if item >= NET_TX else item
