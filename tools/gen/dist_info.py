"""Writes the metadata of the Python package from pyproject.toml, as in a wheel: `dist_info.py
DIRECTORY`.

debian/rules calls this: Debian 12 lacks the wheel's build backend.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write(directory: Path) -> None:
    """Writes careful-VERSION.dist-info into a directory."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    fields = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {one}" for one in project["dependencies"]),
    ]
    for extra, needed in project["optional-dependencies"].items():
        fields.append(f"Provides-Extra: {extra}")
        fields += [f"Requires-Dist: {one} ; extra == '{extra}'" for one in needed]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    entries = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), "")
    ]
    folder = directory / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text("\n".join(fields) + "\n")
    (folder / "entry_points.txt").write_text("\n".join(entries))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
