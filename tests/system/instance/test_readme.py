"""Runs README's lines and programs in order in one lab."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hosts import PINS, wait_for
from lab import Lab, MakeLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def blocks(heading: str, language: str = "") -> list[str]:
    """Returns the code blocks below a heading."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)^## ", README, re.M | re.S)
    return re.findall(rf"^```{language}\n(.*?)^```$", part, re.M | re.S)


def shell(lab: Lab | None, text: str, tmp_path: Path) -> str:
    """Runs lines in one shell, on h1 if there is a lab, with a smaller file and in our folder."""
    text = re.sub(r"/tmp/(h\d)", rf"{tmp_path}/\1", text).replace("-c 1G", "-c 8M")
    argv = ["bash", "-e", "-c", text]
    argv = lab.argv("h1", *argv) if lab else argv
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def readme_lab(lab: Lab, tmp_path: Path):
    """Yields the lab after the lines of Quick start."""
    first, *_ = blocks("Quick start")
    setup, *lines, last = first.splitlines()
    assert (setup, last.split("#")[0].strip()) == ("tools/setup", "tools/lab exec h1 -- bash")
    lines.remove("tools/lab up")
    for line in lines:
        shell(None, line.replace("tools/lab exec", f"tools/lab exec --name {lab.name}"), tmp_path)
    yield lab
    for host in ("h1", "h2"):
        lab.run(host, "carefulctl", "down", "eth1", check=False)


def test_readme__from_its_quick_start_to_its_programs(readme_lab: Lab, tmp_path: Path) -> None:
    """The lab had a read-only export, and was down when Python needed it."""
    (files,) = blocks("Files")
    said = shell(readme_lab, files, tmp_path)
    assert "compared" in said
    assert (tmp_path / "h1/big").read_bytes() == (tmp_path / "h2/big").read_bytes()
    assert (tmp_path / "h2/backup/README.md").read_text() == README
    (memory,) = blocks("Memory", "python")
    (tmp_path / "memory.py").write_text(memory)
    assert shell(readme_lab, f"python {tmp_path}/memory.py", tmp_path) == "True\n"
    through, serves, asks = blocks("Python", "python")
    (before,) = re.findall(r"after `(echo [^`]*)`", README)
    at = f"cd /tmp/h1; {before}; python -c '{through}'"
    assert shell(readme_lab, at, tmp_path) == "b'hello'\n"
    (down,) = set(re.findall(r"after `(carefulctl down eth1)`", README))
    for host in ("h1", "h2"):
        readme_lab.run(host, *down.split())
    server = readme_lab.start("h2", "python", "-c", serves)
    wait_for((PINS / readme_lab.instance("h2")).exists, "node")
    assert (
        shell(readme_lab, f"python -c '{asks}'", tmp_path) == "b'HELLO'\nbytearray(b'some bytes')\n"
    )
    assert server.poll() is None
    server.kill()
    server.wait()
    (operating,) = blocks("Operating")
    up, *lines = [line.split("#")[0].split() for line in operating.splitlines()]
    for host in ("h1", "h2"):
        readme_lab.run(host, *up)
    assert ["carefulctl", "fleet", "status"] in lines
    said = shell(readme_lab, "carefulctl fleet status", tmp_path)
    assert {line.split()[0] for line in said.splitlines()[-2:]} == {"h1", "h2"}


def test_readme__lines_of_measuring(make_lab: MakeLab, tmp_path: Path) -> None:
    """After `exit` the user was not on h1, and "up, twice" is no command."""
    (block,) = blocks("Measuring and tuning")
    leaves, _, *lines = [line.split("#")[0].strip() for line in block.splitlines()]
    assert leaves == "exit"
    lab = make_lab(hops=ROOT / "tools" / "laboratory" / "hops.toml")
    at = lines.index("tools/lab exec h1 -- bash")
    for line in lines[:at]:
        shell(None, line.replace("tools/lab exec", f"tools/lab exec --name {lab.name}"), tmp_path)
    long = ("carefulctl speed", "carefulctl tune auto", "carefulctl bench")  # tried elsewhere
    for line in lines[at + 1 :]:
        assert line.startswith("carefulctl ")
        if not line.startswith(long):
            line = line.replace("ping h2", "ping -c 2 h2").replace("h2.json", f"{tmp_path}/h2.json")
            if " measure " in line:  # a figure may be withheld
                line += " || [ $? = 5 ]"
            shell(lab, line, tmp_path)
