"""Writes the manual pages of a package that is not installed yet: `pages.py BUILT DIRECTORY`.

The build calls this for the wheel: BUILT is a folder `careful` with the compiled part; the rest is
in ctrl/.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "ctrl" / "careful"


def main() -> None:
    built, directory = sys.argv[1:]
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(
        "careful", SOURCE / "__init__.py", submodule_search_locations=[str(SOURCE), built]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["careful"] = package
    spec.loader.exec_module(package)
    from roff import write  # needs careful

    print(f"{write(Path(directory))} manual pages")


main()
