"""The wheel, installed with only its requirements: all of it works or says why not."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from careful import man
from packaging.requirements import Requirement
from roff import title

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = {"scipy", "matplotlib", "pillow", "prometheus-client", "scapy"}


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def required(name: str) -> set[str]:
    """Returns a distribution's dependencies without extras, recursively."""
    found = set()
    for line in metadata.requires(name) or []:
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            found |= {one.name.lower(), *required(one.name)}
    return found


def lend(names: Sequence[str], site: Path) -> None:
    """Links distributions of this environment into another, since pip would need a network."""
    for name in names:
        found = metadata.distribution(name)
        tops = {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", ".")}
        for top in tops - {"__pycache__"}:
            (site / top).symlink_to(Path(str(found.locate_file(top))))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the wheel. Returns the folder of its programs."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    lock = ["flock", ROOT / "build/gcc.lock"]  # of tools/build
    made = run(*lock, *pip, "wheel", ROOT, "--no-deps", "--no-build-isolation", "-q", "-w", folder)
    assert made.returncode == 0, made.stderr
    (wheel,) = folder.glob("careful-*.whl")
    venv.create(folder / "fresh")
    python = folder / "fresh/bin/python"
    done = run(*pip, "--python", python, "install", "--no-deps", "--no-index", "-q", wheel)
    assert done.returncode == 0, done.stderr
    (site,) = (folder / "fresh/lib").glob("python*/site-packages")
    lend(sorted(required("careful")), site)
    return folder / "fresh/bin"


def test_wheel__requires_none_of_the_extras() -> None:
    assert "numpy" in required("careful")
    assert not EXTRAS & required("careful")


def test_wheel__carries_its_dependencies(installed: Path) -> None:
    done = run(installed / "carefulctl", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: carefulctl" in done.stdout
    done = run(installed / "carefuld", "--help")
    assert "usage" in (done.stdout + done.stderr).lower()
    where = run(installed / "python", "-c", "import careful; print(careful.__file__)").stdout
    assert where.startswith(str(installed.parent))


def test_wheel__brings_the_manual(installed: Path) -> None:
    """man finds the pages next to a program in PATH."""
    pages = {path.name for path in (installed.parent / "share/man").glob("man*/*")}
    assert {"carefulctl.1", "carefulctl-get.1", "carefulctl-tune-set.1"} <= pages
    assert {"{}.{}".format(*title(topic)) for topic in man.topics()} <= pages
    assert "careful.toml.5" in pages
    page = (installed.parent / "share/man/man7/careful-files.7").read_text()
    assert '.TH "CAREFUL-FILES" "7"' in page


def test_wheel__requires_its_imports() -> None:
    """Each import is a requirement of its own, since another distribution may drop it."""
    own = {Requirement(line).name.lower() for line in metadata.requires("careful") or []}
    known = metadata.packages_distributions()
    imported = set()
    for path in (ROOT / "ctrl/careful").rglob("*.py"):
        found = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.M)
        imported |= {name for one in found for name in known.get(one, [])}
    assert "rich" in imported
    optional = {"bcc", "careful", "scapy"}
    assert {name.lower().replace("_", "-") for name in imported} - own - optional == set()


def test_wheel__plans_without_extras(installed: Path) -> None:
    argv = ["plan", "--pipeline", "gam", "--bytes", "4KiB"]
    done = run(installed / "carefulctl", *argv, "--strategy", "ramp")
    assert (done.returncode, done.stderr) == (0, "")
    assert "µs" in done.stdout
    for more, said in ((["--strategy", "lp"], "plan"), (["--plot", "x.svg"], "plot")):
        done = run(installed / "carefulctl", *argv, *more)
        assert done.returncode in (1, 2)
        assert done.stderr.count("\n") == 1
        assert f"pip install 'careful[{said}]'" in done.stderr
