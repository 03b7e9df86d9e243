"""One thing that `doctor` looked at. Calls nobody: it stands when nothing else can be loaded."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"
#: What mends careful itself, and the libraries that it needs, where they are missing or damaged.
REINSTALL = "apt-get install --reinstall careful; in a source tree, tools/setup"


@dataclass(frozen=True)
class Finding:
    """What one check found: made by ok(), unknown(), warn() and fail().

    Attributes:
        check: what was looked at.
        state: ok, warn, fail (`up` would refuse) or unknown (could not be seen).
        text: what is there; of a failure, the line of `up`.
        advice: what mends it, as one can do it: a command, an option, a file to change; "" where
            nothing is to be mended.
        fix: the command that does it, where it concerns the interface alone; () if none.
    """

    check: str
    state: str
    text: str
    advice: str = ""
    fix: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.advice or self.state in (OK, UNKNOWN), f"{self.check}: what mends it?"


def ok(check: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(check, OK, text)


def unknown(check: str, text: str) -> Finding:
    """It could not be seen."""
    return Finding(check, UNKNOWN, text)


def warn(check: str, text: str, advice: str, fix: tuple[str, ...] = ()) -> Finding:
    """`up` takes it, and it is better otherwise."""
    return Finding(check, WARN, text, advice, fix)


def fail(check: str, text: str, advice: str, fix: tuple[str, ...] = ()) -> Finding:
    """`up` would refuse it."""
    return Finding(check, FAIL, text, advice, fix)
