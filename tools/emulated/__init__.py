"""Emulated machines: a kernel of Debian's, QEMU, and this host's root file system beneath."""
