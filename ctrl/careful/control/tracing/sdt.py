"""Reads USDT probes from the `.note.stapsdt` section of a process's ELF file."""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from careful.errors import CarefulError, from_os

PROVIDER = "careful"

_STAPSDT = 3  # type of the note
_SHT_NOTE = 7
_PT_LOAD = 1


@dataclass(frozen=True)
class Probe:
    """One probe of one file.

    Attributes:
        offset: offset of its instruction in the file, bytes.
        semaphore_offset: offset in the file of the word that counts listeners, bytes; 0 if none.
        arguments: locations of its arguments, as in the note.
    """

    name: str
    offset: int
    semaphore_offset: int
    arguments: str


class _Elf:
    """The parts of a 64-bit ELF file, of either byte order, that the notes need."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF" or len(data) < 64 or data[4] != 2 or data[5] not in (1, 2):
            raise ValueError("not an ELF file of 64 bits")
        self.data, self.order = data, "<" if data[5] == 1 else ">"
        header = struct.unpack_from(f"{self.order}16xHHIQQQIHHHHHH", data)
        self._programs = self._table(header[4], header[8], header[9], "IIQQQQQQ")
        sections = self._table(header[5], header[10], header[11], "IIQQQQIIQQ")
        self.sections = [section for section in sections if section[1] == _SHT_NOTE]
        self.bases = {}
        if header[12] < len(sections):
            names = sections[header[12]]
            for section in sections:
                self.bases[self.text(names[4] + section[0])] = section[3]

    def _table(self, at: int, size: int, count: int, form: str) -> list[tuple[int, ...]]:
        form = self.order + form
        if count and (size < struct.calcsize(form) or at + size * count > len(self.data)):
            raise ValueError("its tables point outside the file")
        return [struct.unpack_from(form, self.data, at + size * k) for k in range(count)]

    def text(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode(errors="replace")

    def offset_of(self, address: int) -> int:
        """Returns the place in the file that is loaded at an address."""
        for kind, _, offset, start, _, in_file, _, _ in self._programs:
            if kind == _PT_LOAD and start <= address < start + in_file:
                return address - start + offset
        raise ValueError(f"address {address:#x} is not in the file")


def _notes(elf: _Elf, section: tuple[int, ...]) -> list[bytes]:
    notes, position, end = [], section[4], section[4] + section[5]
    while position + 12 <= end:
        name_bytes, desc_bytes, kind = struct.unpack_from(f"{elf.order}III", elf.data, position)
        name = elf.data[position + 12 : position + 12 + name_bytes]
        position += 12 + (name_bytes + 3) // 4 * 4
        if name == b"stapsdt\0" and kind == _STAPSDT:
            notes.append(elf.data[position : position + desc_bytes])
        position += (desc_bytes + 3) // 4 * 4
    return notes


def parse(data: bytes, provider: str = PROVIDER) -> list[Probe]:
    """Returns the probes of an ELF file.

    Raises ValueError: the file is damaged, or not a 64-bit ELF file.
    """
    try:
        elf = _Elf(data)
        probes = []
        for note in [note for section in elf.sections for note in _notes(elf, section)]:
            address, base, semaphore = struct.unpack_from(f"{elf.order}QQQ", note)
            texts = note[24:].split(b"\0")
            if texts[0].decode() != provider:
                continue
            moved = elf.bases.get(".stapsdt.base", base) - base  # by prelink
            probes.append(
                Probe(
                    texts[1].decode(),
                    elf.offset_of(address + moved),
                    elf.offset_of(semaphore + moved) if semaphore else 0,
                    texts[2].decode(),
                )
            )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged: {error}") from None
    return probes


def of_process(pid: int) -> tuple[str, dict[str, Probe]]:
    """Returns the file with careful's code in a process, and its probes.

    The path stays valid if the file is renamed. Raises CarefulError if there is no such process, it
    may not be read, or it has no probes.
    """
    maps = Path(f"/proc/{pid}/maps")
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        raise CarefulError(errno.ESRCH, "the process has ended", f"process {pid}") from None
    except OSError as error:
        raise from_os(error, str(maps)) from None
    seen = set()
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or "x" not in fields[1] or fields[4] == "0":
            continue
        if (fields[3], fields[4]) in seen:
            continue
        seen.add((fields[3], fields[4]))
        path = f"/proc/{pid}/map_files/{fields[0]}"
        with suppress(FileNotFoundError, ValueError):
            try:
                probes = parse(Path(path).read_bytes())
            except PermissionError:
                raise CarefulError(errno.EPERM, "must be run as root (sudo)", "trace") from None
            if probes:
                return path, {probe.name: probe for probe in probes}
    what = Path(lines[0].split(maxsplit=5)[-1]).name if lines else "the process"
    text = f"{what} has no probes: it is older than this careful, or was built without them"
    raise CarefulError(errno.ENOTSUP, text, f"process {pid}")
