"""Compares patterns with rsync's: with a record (rsync_patterns.json), and with an installed rsync.

For each set of options the record has the names that rsync left out, without names below them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from careful.transfer.filters import Filters, read_patterns, rules

RECORD = json.loads(Path(__file__).with_name("rsync_patterns.json").read_text())
SETS = [(words, out) for words, out in RECORD["sets"]]


def everything() -> dict[str, bool]:
    """Returns each name of the record's tree, and whether it is a directory; parents first."""
    found: dict[str, bool] = {}
    for name in RECORD["names"]:
        for above in reversed(Path(name).parents[:-1]):
            found[str(above)] = True
        found[name.rstrip("/")] = name.endswith("/")
    return dict(sorted(found.items(), key=lambda one: one[0].count("/")))


def left_out(kept: set[str]) -> list[str]:
    """Returns names that are left out though their directories are kept."""
    return sorted(
        name
        for name in everything()
        if name not in kept and ("/" not in name or name.rpartition("/")[0] in kept)
    )


@pytest.mark.parametrize(("words", "out"), SETS, ids=[" ".join(words) for words, _ in SETS])
def test_patterns__as_rsync_s_were(words: list[str], out: list[str]) -> None:
    given = [(option == "--include", text) for option, text in zip(*[iter(words)] * 2, strict=True)]
    kept = Filters(rules(given)).select(everything().items())
    assert left_out(kept) == out


def test_patterns__as_rsync_s_are(tmp_path: Path) -> None:
    """The record agrees with the installed rsync."""
    if not (rsync := shutil.which("rsync")):
        pytest.skip("rsync is not installed")
    top = tmp_path / "from"
    for name, is_dir in everything().items():
        path = top / name
        path.mkdir(parents=True) if is_dir else path.write_text("1")
    for number, (words, out) in enumerate(SETS):
        target = tmp_path / str(number)
        subprocess.run([rsync, "-a", *words, f"{top}/", target], check=True)
        kept = {str(one.relative_to(target)) for one in target.rglob("*")}
        assert left_out(kept) == out, words


def test_patterns__of_a_file() -> None:
    text = "# no\n; no\n\n+ /d/f\n- d/*\r\ncache\n*.o \n"
    found = rules(read_patterns(text))
    assert found == ((True, "/d/f"), (False, "d/*"), (False, "cache"), (False, "*.o "))


@pytest.mark.parametrize("text", ["- ", "+ "])
def test_patterns__nothing_behind_the_sign(text: str) -> None:
    with pytest.raises(ValueError, match="no pattern follows the sign"):
        rules([(False, text)])
