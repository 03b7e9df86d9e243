"""The result of one check of `doctor`. Imports nothing of careful, so it always loads."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"
#: Advice if careful or a library that it needs is missing or damaged.
REINSTALL = "apt-get install --reinstall careful; in a source tree, tools/setup"


@dataclass(frozen=True)
class Finding:
    """Result of one check: made by ok(), unknown(), warn() and fail().

    Attributes:
        state: ok, warn, fail (`up` would refuse) or unknown (could not be seen).
        text: the finding; for a failure, the error of `up`.
        advice: what to do: a command, an option, a file to change; "" if nothing.
        fix: a command that follows the advice and changes only the interface; () if none.
    """

    check: str
    state: str
    text: str
    advice: str = ""
    fix: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.advice or self.state in (OK, UNKNOWN), f"{self.check}: no advice"


def ok(check: str, text: str) -> Finding:
    """Returns a finding without a fault."""
    return Finding(check, OK, text)


def unknown(check: str, text: str) -> Finding:
    """Returns a finding for something that could not be seen."""
    return Finding(check, UNKNOWN, text)


def warn(check: str, text: str, advice: str, fix: tuple[str, ...] = ()) -> Finding:
    """Returns a finding that `up` accepts but that should be improved."""
    return Finding(check, WARN, text, advice, fix)


def fail(check: str, text: str, advice: str, fix: tuple[str, ...] = ()) -> Finding:
    """Returns a finding that `up` would refuse."""
    return Finding(check, FAIL, text, advice, fix)
