"""One thing that `doctor` looked at. Calls nobody: it stands when nothing else can be loaded."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: what was looked at.
        state: ok, warn, fail (`up` would refuse) or unknown (could not be seen).
        text: what is there; of a failure, the line of `up`.
        advice: what to do beside it; "" if nothing.
        fix: the command that does it, where it concerns the interface alone; () if none.
    """

    check: str
    state: str
    text: str
    advice: str = ""
    fix: tuple[str, ...] = ()
