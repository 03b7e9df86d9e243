"""Programs that careful starts do not import or read files of the current directory."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import careful
import pytest
from careful import child
from careful.errors import CarefulError
from hosts import Host

SOURCE = Path(careful.__file__).parent
ROOT = Path(__file__).parents[2]
#: Exceptions: these run the user's commands, which may name such files.
USERS_WORDS = ("bench/nodes.py", "fleet/chain.py", "fleet/running.py")
#: The upgraded command continues with its words in its directory.
AGAIN = "[sys.executable, *sys.orig_argv[1:]]"


def test_interpreters__import_nothing_from_the_current_directory() -> None:
    started = {
        (str(path.relative_to(SOURCE)), ast.unparse(node))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.List) and ast.unparse(node).startswith("[sys.executable")
    }
    assert started
    safe = {one for one in started if one[1].startswith("[sys.executable, '-P', ")}
    assert {text for _, text in started - safe} == {AGAIN}


def test_programs__are_started_in_the_root_directory() -> None:
    """So a PATH with "." finds no program of the current directory."""
    starts = ("subprocess.run", "subprocess.Popen", "asyncio.create_subprocess_exec")
    calls = {
        (str(path.relative_to(SOURCE)), ast.unparse(node))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in starts
    }
    elsewhere = {path for path, call in calls if "cwd='/'" not in call}
    assert len(calls) > len(elsewhere)
    assert elsewhere == {*USERS_WORDS}


def test_packaging__interpreters_import_nothing_from_the_current_directory() -> None:
    started = [
        line
        for path in (ROOT / "tools/packaging").rglob("*")
        if path.is_file()
        for line in re.findall(r"^\s*(?:\w+=)?(?:/usr/bin/)?python3? .*", path.read_text(), re.M)
    ]
    assert started
    assert [line for line in started if " -P " not in line] == []


def test_plot__heeds_no_file_of_the_current_directory(tmp_path: Path) -> None:
    """With text.usetex matplotlib would start LaTeX."""
    pytest.importorskip("matplotlib")
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    show = "from careful.render.figure import _pyplot as p; print(p().rcParams['text.usetex'])"
    argv = [sys.executable, "-c", show]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.lab
def test_up__runs_no_module_of_the_current_directory(lab: object, tmp_path: Path) -> None:
    """Root's current directory may contain another user's click.py."""
    host = Host(lab, "h1", tmp_path)  # type: ignore[arg-type]
    ran, here = tmp_path / "ran", tmp_path / "here"
    here.mkdir()
    for name in ("click", "numpy", "careful"):
        (here / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    try:
        host.ctl("up", "eth1", "--tune", "auto", cwd=here)
        found = host.status()
        assert found["tuner_pid"]
        for pid in (found["tuner_pid"], found["pid"]):
            assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    finally:
        host.ctl("down", "eth1", check=False)
    assert not ran.exists()


def test_program__is_found_in_the_packages_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's packages have it in /usr/libexec/careful, and not in PATH."""
    monkeypatch.setattr(child, "_LIBEXEC", tmp_path)
    with pytest.raises(CarefulError, match="careful-none: it is not installed"):
        child.program("careful-none")
    path = tmp_path / "careful-none"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    assert child.program("careful-none") == str(path)
