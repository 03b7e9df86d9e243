"""What tools/setup installs: each package by its hash, and none of tests where none are run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

TOOLS = Path(__file__).parents[2] / "tools"


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def pinned(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each package that a file of requirements names."""
    text = (TOOLS / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = [
        re.fullmatch(r"(\S+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+) *", one) for one in lines
    ]
    assert all(found), [line for line, one in zip(lines, found, strict=True) if not one]
    return {normal(one[1]): (one[2], one[3].split()) for one in found if one}


def needed(package: str, extras: Iterable[str] = ()) -> set[str]:
    """What a package needs, and what that needs, by what is installed."""
    seen: set[tuple[str, str]] = set()
    todo = [(package, extra) for extra in ("", *extras)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for one in map(Requirement, metadata.requires(name) or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                todo += [(normal(one.name), more) for more in ("", *one.extras)]
    return {name for name, _ in seen if name != "careful"}


def test_requirements__without_those_of_tests_are_what_careful_needs() -> None:
    wanted = needed("careful", ("plan", "plot")) | needed("scikit-build-core")
    assert set(pinned("requirements.txt")) == wanted


def test_requirements__are_installed_by_their_hashes() -> None:
    """A version alone trusts whoever has the index, or the account, on the day of the set-up."""
    mine, tests = pinned("requirements.txt"), pinned("requirements-test.txt")
    assert not set(mine) & set(tests)
    for name, (version, _) in (mine | tests).items():
        assert metadata.version(name) == version
    installs = re.findall(r"-m pip install(?:[^\n]*\\\n)*[^\n]*", (TOOLS / "setup").read_text())
    fetching = [one for one in installs if '"$root"' not in one]  # but for careful itself
    assert fetching
    assert all("--require-hashes" in one and "--no-deps" in one for one in fetching)
    assert len(installs) == len(fetching) + 1
