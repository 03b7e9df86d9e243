"""What a command does when carefuld is another release's in the middle of its work."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

pytest.importorskip("careful._binding")

from careful.cli.running import Outlasting
from careful.errors import CarefulError, OtherReleaseError

UPGRADED = OtherReleaseError(errno.EPROTO, "carefuld is another release's")
#: As a transfer that meets another release's carefuld, but in the process that follows.
PROGRAM = """
import os, sys
from careful.cli.running import Outlasting
from careful.errors import OtherReleaseError
with Outlasting(60.0) as patience:
    patience.begun = "AGAIN" not in os.environ
    os.environ["AGAIN"] = ""
    print(os.getpid(), *sys.argv[1:], flush=True)
    raise OtherReleaseError(71, "carefuld is another release's")
"""


def test_outlasting__becomes_the_command_that_is_installed() -> None:
    """In the same process, with the same words; once, where that cannot speak with it either."""
    argv = [sys.executable, "-c", PROGRAM, "get", "h2:a b", "."]
    done = subprocess.run(argv, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.endswith(" get h2:a b .")
    assert done.stderr.count("carefuld was upgraded; goes on") == 1
    assert done.stderr.endswith("OtherReleaseError: carefuld is another release's\n")


@pytest.mark.parametrize(
    ("begun", "patience_s", "error"),
    [
        (False, 60.0, UPGRADED),
        (True, 0.0, UPGRADED),
        (True, 60.0, CarefulError(errno.EPROTO, "the listing has a bad entry")),
    ],
    ids=["not begun", "does not go on", "another error"],
)
def test_outlasting__ends(
    begun: bool, patience_s: float, error: CarefulError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("it became another program"))
    patience = Outlasting(patience_s)
    patience.begun = begun
    with pytest.raises(type(error)), patience:
        raise error
