"""The core without its extras imports, measures, plans, and names missing extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from careful import extras
from careful.extras import EXTRAS, MissingExtraError, need

#: Hides the extras' packages; pillow and contourpy come with matplotlib only.
WITHOUT = """
import sys
for name in ("scipy", "matplotlib", "prometheus_client", "scapy", "PIL", "contourpy", "IPython"):
    sys.modules[name] = None
"""

EVERY_MODULE = """
import importlib, pkgutil, careful
for one in pkgutil.walk_packages(careful.__path__, "careful."):
    if not one.name.endswith((".libcareful", ".__main__")):  # the C library; programs
        importlib.import_module(one.name)
"""

#: Needs of a program that measures a path and sets its fragment sizes.
LOOP = """
import numpy as np
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import fit_line
from careful.measure.statistics.piecewise import fit_piecewise
from careful.measure.statistics.sample import figure
from careful.model import class_table, load_shipped, plan
sizes = np.repeat(np.arange(64, 3000, 200), 5)
line = fit_line(sizes, 10 + sizes / 100 + np.tile([0, 0.1, 0.2, 0.3, 0.4], 15))
assert line.supported and line.G_us_per_KiB.half > 0
assert fit_piecewise(np.arange(1, 20), np.arange(1, 20) * 2.0).lines
assert Estimate(1.0, 0.1, 5).half > 0.2
assert len(class_table(load_shipped("gam"))) == 16
assert plan(load_shipped("gam"), 4096, lp=False).fragments_count > 1
"""


def without(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + code, *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("code", [EVERY_MODULE, LOOP], ids=["every module", "tuning"])
def test_core__does_without_the_extras(code: str) -> None:
    done = without(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["plan", "--pipeline", "gam", "--bytes", "4KiB", "--strategy", "lp"], "careful[plan]"),
        (
            ["simulate", "--pipeline", "gam", "--bytes", "4KiB", "--plot", "nowhere/x.svg"],
            "careful[plot]",
        ),
        (["exporter"], "careful[exporter]"),
        (["exporter", "--once"], "careful[exporter]"),
        (["measure", "pathchar", "127.0.0.1", "--plot", "nowhere/x.svg"], "careful[plot]"),
    ],
)
def test_command__names_the_extra_in_one_line(argv: list[str], said: str) -> None:
    done = without("from careful.cli.start import main; main()", *argv)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    (last,) = done.stderr.splitlines()
    assert f"pip install '{said}'" in last or last.replace("'", "").endswith("tools/setup extras")
    assert "Traceback" not in done.stderr


def test_command__needs_no_extra_for_the_rest() -> None:
    planning = ["plan", "--pipeline", "gam", "--bytes", "4KiB", "--strategy", "ramp"]
    for argv in (["--help"], planning):
        done = without("from careful.cli.start import main; main()", *argv)
        assert (done.returncode, done.stderr) == (0, ""), argv


def test_best__without_scipy_chooses_among_other_strategies_with_a_note() -> None:
    argv = ["plan", "--pipeline", "gam", "--bytes", "4KiB"]
    done = without("from careful.cli.start import main; main()", *argv)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ramp: 184.4 µs in 5 fragments" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("not tried: strategy lp needs scipy: ")


def test_need__names_the_user_of_each_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in EXTRAS:
        need(package, "this test")
    monkeypatch.setitem(sys.modules, "scipy", None)  # type: ignore[arg-type]
    monkeypatch.setattr(extras, "_SETUP", Path("/nowhere"))
    with pytest.raises(MissingExtraError, match=r"^a test needs scipy: pip install 'careful\[plan"):
        need("scipy", "a test")


def test_need__names_tools_setup_in_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setup = tmp_path / "a b/tools/setup"
    setup.parent.mkdir(parents=True)
    setup.touch()
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # type: ignore[arg-type]
    monkeypatch.setattr(extras, "_SETUP", setup)
    assert extras.lacking("matplotlib", "a plot").endswith(f": '{setup}' extras")


@pytest.mark.parametrize("package", EXTRAS)
def test_need__names_the_apt_package_in_debians_package(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There pip is missing, or refuses (PEP 668)."""
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    monkeypatch.setattr(extras, "__file__", f"{extras._DEBIAN}careful/extras.py")
    name = {"IPython": "ipython", "prometheus_client": "prometheus-client"}.get(package, package)
    with pytest.raises(MissingExtraError, match=f": apt install python3-{name}$"):
        need(package, "a test")
