"""Shared by all tests."""

import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["lab", "hosts", "disks"]

# No example is timed: on a busy machine any may take long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell that starts us in the background has SIGINT ignored, and whatever we start
# would inherit that: tests of Ctrl-C would interrupt nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers of pytest-xdist see a terminal of 80 columns, so tables would fold.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # readline sets it behind Python's back

# Tests that end a carefuld under a transfer look at how it ends; those that wait say so.
os.environ["CAREFUL_OUTLAST"] = "0s"

# The tests use the careful that is installed next to this Python, activated or not. An incomplete
# one fails the run: skipped tests would look as if they had passed.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
if shutil.which("carefuld") is None or find_spec("careful._binding") is None:
    raise pytest.UsageError("careful is not built: tools/setup")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait longest come first: side by side, no file is left over at the end."""
    items.sort(key=lambda one: one.nodeid.split("/")[1] not in ("system", "tools"))
