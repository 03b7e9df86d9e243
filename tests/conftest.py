"""What all tests share."""

import signal

pytest_plugins = ["lab", "hosts", "disks"]

# A shell that starts us in the background has SIGINT ignored, and whatever we start
# would inherit that: tests of Ctrl-C would interrupt nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
