"""A command continues though carefuld is upgraded in the middle of its work."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from careful.cli.files import transfer
from careful.cli.files.transfer_options import options_of, reads_again
from careful.cli.main import run
from careful.cli.running import Outlasting
from careful.errors import CarefulError, OtherReleaseError

UPGRADED = OtherReleaseError(errno.EPROTO, "carefuld is from another release")
#: Like a transfer that meets an upgraded carefuld, but in the next process.
PROGRAM = """
import os, sys
from careful.cli.files import transfer
from careful.cli.main import run
from careful.cli.running import Outlasting
from careful.cli.files.transfer_options import options_of, reads_again
from careful.errors import OtherReleaseError
with Outlasting(60.0) as patience:
    patience.begun = "AGAIN" not in os.environ
    os.environ["AGAIN"] = ""
    print(os.getpid(), *sys.argv[1:], flush=True)
    raise OtherReleaseError(71, "carefuld is from another release")
"""


def test_outlasting__becomes_the_command_that_is_installed() -> None:
    """In the same process, with the same words; only once, if that command cannot speak with
    carefuld either.
    """
    argv = [sys.executable, "-c", PROGRAM, "get", "h2:a b", "."]
    done = subprocess.run(argv, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.endswith(" get h2:a b .")
    assert done.stderr.count("carefuld was upgraded; continuing") == 1
    assert done.stderr.endswith("OtherReleaseError: carefuld is from another release\n")


@pytest.mark.parametrize(
    ("begun", "patience_s", "again", "error"),
    [
        (False, 60.0, True, UPGRADED),
        (True, 0.0, True, UPGRADED),
        (True, 60.0, False, UPGRADED),
        (True, 60.0, True, CarefulError(errno.EPROTO, "the listing has a bad entry")),
    ],
    ids=["not begun", "does not go on", "was read from a pipe", "another error"],
)
def test_outlasting__ends(
    begun: bool,
    patience_s: float,
    again: bool,
    error: CarefulError,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("it became another program"))
    patience = Outlasting(patience_s, again)
    patience.begun = begun
    with pytest.raises(type(error)), patience:
        raise error


@pytest.mark.parametrize("option", ["--exclude-from", "--files-from"])
def test_reads_again__only_files(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe can be read only once, so patterns that protect files from --delete would be lost."""
    found = []

    def looked(given: dict[str, Any], *more: Any) -> None:
        options_of(given, *more)
        found.append(reads_again())
        raise CarefulError(errno.EIO)

    monkeypatch.setattr(transfer, "options_of", looked)
    (tmp_path / "list").write_text("kept\n")
    reading, writing = os.pipe()
    os.write(writing, b"kept\n")
    os.close(writing)
    for name in (str(tmp_path / "list"), f"/dev/fd/{reading}"):
        assert run(["get", "-r", option, name, "h2:a", str(tmp_path)]) != 0
    os.close(reading)
    assert found == [True, False]
