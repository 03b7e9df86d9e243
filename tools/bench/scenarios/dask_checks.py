"""distributed's own checks of comms over careful://, on two hosts of a lab; kept, each by name.

No package of distributed has its tests, so a checkout is needed: the one that is named, or that of
the installed release's tag, fetched with git. tests/support/dask_tests.py says which checks. Owns a
lab. Needs root; tools/setup run build test brings distributed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from bench_lab import HOSTS, LAB, PYTHON, ROOT, BenchError, daemons, lab_up, on, run

CHECKS = ROOT / "tests/support/dask_tests.py"
SOURCE = "https://github.com/dask/distributed"


def release() -> str:
    (site,) = (ROOT / ".venv/lib").glob("python3*/site-packages")
    (found,) = metadata.distributions(name="distributed", path=[str(site)])
    return found.version


def fetched() -> Path:
    """A checkout of the installed release."""
    version = release()
    path = ROOT / "build" / f"distributed-{version}"
    if not path.exists():
        run("git", "clone", "-q", "--depth", "1", "--branch", version, SOURCE, path)
    return path


def checked(checkout: Path) -> list[dict[str, str]]:
    """Name and outcome of each, as pytest says."""
    env = {
        "CAREFUL_DISTRIBUTED": str(checkout),
        "CAREFUL_INSTANCES": " ".join(f"{LAB}-{host}" for host in HOSTS),
        "PYTHONPATH": str(checkout),
    }
    argv = on("h1", PYTHON, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", CHECKS)
    with lab_up(), daemons("--insecure"):
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=170, env=os.environ | env
        )
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) \S+?::(\S+)", done.stdout, re.MULTILINE)
    if not found:
        raise BenchError(f"no check ran: {(done.stdout + done.stderr).strip()[-200:]}")
    return [{"name": name, "outcome": outcome.lower()} for outcome, name in sorted(found)]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkout", type=Path, nargs="?", help="of distributed, with its .git")
    parser.add_argument("--of", metavar="COMMIT", help="the checkout's, if it has no .git")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Runs the checks of a checkout."""
    checkout = (args.checkout or fetched()).resolve()
    of = args.of or run("git", "-C", checkout, "rev-parse", "HEAD").strip()
    return {"distributed": of, "release": release(), "checks": checked(checkout)}


def report(kept: dict[str, Any]) -> bool:
    """Reports whether all passed."""
    passed = sum(one["outcome"] == "passed" for one in kept["checks"])
    print(f"{passed} of {len(kept['checks'])} passed")
    return bool(passed == len(kept["checks"]))
