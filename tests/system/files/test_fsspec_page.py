"""`carefulctl help fsspec`: its programs print the output on the page."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from careful import man
from hosts import Host

pytest.importorskip("fsspec")
pytestmark = pytest.mark.lab

#: Programs and their output; a program needs the packages that it imports.
PROGRAMS = re.findall(
    r"^```python\n(.*?)^```\n\n```\n(.*?)^```\n", man.source("fsspec"), re.M | re.S
)
PACKAGES = ("pandas", "pyarrow", "zarr")
#: Possible end of a finished program before Python 3.14, with any file system of fsspec (even
#: memory://): a thread of pyarrow 26 releases a buffer while Python ends.
ARROW_ABORTED = -signal.SIGABRT, "terminate called without an active exception\n"


def test_page__has_a_program_for_each() -> None:
    assert man.source("fsspec").count("```python") == len(PROGRAMS) == len(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_program__as_on_the_page(pair: tuple[Host, Host], package: str) -> None:
    pytest.importorskip(package)
    local, remote = pair
    text, output = PROGRAMS[PACKAGES.index(package)]
    assert f"import {package}" in text
    for _ in range(5):
        done = subprocess.run(
            local.lab.argv("h1", sys.executable, "-c", text),
            cwd=local.own,
            capture_output=True,
            text=True,
            timeout=100,
        )
        if (done.returncode, done.stderr) != ARROW_ABORTED:
            break
    assert (done.stdout, done.stderr, done.returncode) == (output, "", 0)
    assert list(remote.export.iterdir())
    local.assert_nothing_lost()
