"""`python -m careful.man DIRECTORY`: write the manual pages below it (man1, man5, man7)."""

from __future__ import annotations

import sys
from pathlib import Path

from careful.man.roff import write

if len(sys.argv) != 2:
    sys.exit("usage: python -m careful.man DIRECTORY")
print(f"{write(Path(sys.argv[1]))} pages")
