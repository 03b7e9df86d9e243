"""Emulated machines: a Debian kernel, QEMU, and this host's root file system, read-only."""
