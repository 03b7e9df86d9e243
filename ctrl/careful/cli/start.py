"""Where `carefulctl` begins. Imports take most of its start: Ctrl-C is heard before them."""

from __future__ import annotations

from careful.cli import interrupt

interrupt.arm()


def main() -> None:
    """Run `carefulctl` and exit as its help says."""
    from careful.cli.main import finish, run

    try:
        status = run()
        interrupt.arm()
    except KeyboardInterrupt:  # after what run() catches
        interrupt.interrupted()
    finish(status)
