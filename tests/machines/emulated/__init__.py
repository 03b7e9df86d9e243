"""Emulated machines: a Debian kernel, QEMU, and this host's root file system, read-only.

Importing it makes `laboratory`, the parts of tools/lab, importable, too.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "tools"))
