"""Where `carefulctl` begins. Imports take most of its start: Ctrl-C is heard before them."""

from __future__ import annotations

import os
import sys

from careful.cli import interrupt

interrupt.arm()


def main() -> None:
    """Run `carefulctl` and exit as its help says."""
    from careful.cli.main import finish, run

    if sys.stderr is None:  # begun with it closed: what is said there is for nobody
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    try:
        status = run()
        interrupt.arm()
    except KeyboardInterrupt:  # after what run() catches
        interrupt.interrupted()
    finish(status)
