"""How soon `tune auto` answers a path that changes, on paths of the lab, kind by kind.

h1 reads from h2, or writes to it, about half of the time, over the pipeline of P1's GAM, twenty
times as slow; h2 is tuned. Once it has decided and is calm, something changes (answer_kinds.py).
The report gives time and messages from the change on: until the controller has named it, until
the first push that answers it, and until that push's A/B is decided. An answer is in time within
2 s, or before 30 messages an arm have passed, whichever is later. If no plan gains by the change,
to know that is the answer. Owns a lab for the time of each kind. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from answer_kinds import KINDS, one_kind

ROUNDS = 2

ROWS = "runs"
SECONDS, MESSAGES = 2.0, 2 * 30
#: The first words of a decision about a change, and those that say that nothing gains.
SAYS = ("path changed", "store changed", "path as before")
NOTHING = ("nothing to change", "nothing better")


def times(run: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Returns a run's seconds and messages from the change to each step that there was."""
    later = [one for one in run["decisions"] if one["at_s"] > run["changed_s"]]
    found = {}
    for name, wanted in (("said", SAYS), ("push", ("changed",)), ("nothing", NOTHING)):
        found[name] = next((one for one in later if one["what"] in wanted), None)
    if found["push"]:
        found["nothing"] = None
        found["verdict"] = next((one for one in later if _tells(one, found["push"])), None)
    if run["put_back_s"] is not None:  # what was known of the path, at once
        found["push"] = {"at_s": run["put_back_s"]}
    return {
        name: {
            "after_s": one["at_s"] - run["changed_s"],
            "messages": _count(run, one["at_s"]) - _count(run, run["changed_s"]),
        }
        for name, one in found.items()
        if one is not None
    }


def _tells(one: dict[str, Any], push: dict[str, Any]) -> bool:
    """Reports whether a decision is a verdict on some of what a push changed."""
    pushed = {(each["class"], each.get("sink")) for each in push["classes"]}
    return one["what"] in ("kept", "undone") and any(
        (each["class"], each.get("sink")) in pushed for each in one["classes"]
    )


def arms(run: dict[str, Any]) -> tuple[int, int] | None:
    """Messages with what was before and after, of the first verdict behind a push."""
    for one in run["decisions"]:
        if one["at_s"] > run["changed_s"] and one["what"] in ("kept", "undone"):
            counts = [
                (each["ab"]["before_count"], each["ab"]["after_count"])
                for each in one["classes"]
                if each["class"] == run["class"] and "ab" in each
            ]
            if counts:
                return counts[0]
    return None


def _count(run: dict[str, Any], at_s: float) -> int:
    """Live messages that were measured until then."""
    return max((count for when, count in run["counts"] if when <= at_s), default=0)


def answered(run: dict[str, Any]) -> dict[str, float] | None:
    """The answer: a push, or that nothing gains; where what was known is put back at once, the
    controller's own decision on whether it still holds.
    """
    found = times(run)
    if run["put_back_s"] is not None:
        return found.get("said")
    return found.get("push") or found.get("nothing")


def in_time(run: dict[str, Any]) -> bool:
    """Reports whether the answer came within 2 s, or 30 messages an arm, the later."""
    one = answered(run)
    return one is not None and (one["after_s"] <= SECONDS or one["messages"] <= MESSAGES)


def _shown(found: list[dict[str, dict[str, float]]], name: str) -> str:
    """The middle of all runs that have it."""
    some = [one[name] for one in found if name in one]
    if not some:
        return "-"
    after_s, messages = (
        statistics.median(one[key] for one in some) for key in ("after_s", "messages")
    )
    return f"{after_s:.1f} s, {messages:.0f}"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="[all]")


def stays(row: dict[str, Any], args: argparse.Namespace) -> bool:
    """Reports whether a kept run is not measured anew."""
    return row["kind"] not in (args.kinds or KINDS)


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Runs each kind that is named, in turn."""
    for _ in range(args.rounds):
        for kind in args.kinds or KINDS:
            found = {"kind": kind, **one_kind(KINDS[kind])}
            print(f"{kind}: {answered(found) or 'no answer'}", file=sys.stderr, flush=True)
            yield found


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether all answers came in time."""
    runs = kept["runs"]
    heads = ("said", "push", "nothing gains", "verdict")
    print(
        f"{'medians: seconds, messages':<34}"
        + "".join(f"{head:>16}" for head in heads)
        + f"{'an arm':>12}{'in time':>10}"
    )
    met = True
    for kind, about in KINDS.items():
        mine = [one for one in runs if one["kind"] == kind]
        if not mine:
            continue
        found = [times(one) for one in mine]
        cells = [_shown(found, name) for name in ("said", "push", "nothing", "verdict")]
        judged = sorted(two for one in mine if (two := arms(one)))
        middle = judged[len(judged) // 2] if judged else None
        each = f"{middle[0]}, {middle[1]}" if middle else "-"
        count = sum(map(in_time, mine))
        print(
            f"{about.shown:<34}"
            + "".join(f"{cell:>16}" for cell in cells)
            + f"{each:>12}{f'{count} of {len(mine)}':>10}"
        )
        met &= count == len(mine)
    return met
