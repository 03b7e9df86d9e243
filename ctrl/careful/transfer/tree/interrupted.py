"""A tree's transfer that goes on where an interrupted run of the same command ended.

Owns which files of the target count as brought by that run: what came since it began, says the
mark (marks.py), and is equal, say the digests of both ends. Neither size nor any clock is
trusted: a source may have been changed, and a file cut off from its bytes by a power failure.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from careful.errors import CarefulError
from careful.transfer.file.blocks import all_of
from careful.transfer.protocol.block import Attr, Entry
from careful.transfer.tree.digests import Compare
from careful.transfer.tree.marks import Mark
from careful.transfer.tree.outcome import TEXTS, Sink

#: Whether files have the same contents at both ends; those that it cannot tell are missing.
EqualSmall = Callable[[Sequence[Entry]], Awaitable[dict[str, bool]]]
CHANGED = (
    "is not equal at both ends: one was changed, or made, since the transfer began; "
    "--restart replaces the target's"
)


def again(sink: Sink, mark: Mark | None) -> tuple[Sink, bool]:
    """A tree's sink, and whether what was there before an earlier run stays all the same.

    With --restart what that run brought is replaced.
    """
    options = sink.options
    if mark is None or not options.restart:
        return sink, False
    return replace(sink, options=replace(options, replace=True)), not options.replace


class Continuation:
    """What an earlier run brought.

    Args:
        mark: that it left; None: there was none.
        existing: name -> entry of the target.
        sink: told of what need not come.
        name: what people are told of a name in the source.
        compare: a file at both ends.
        equal_small: many small ones.
        spares: whether what was there before that run stays, though files are replaced.

    Attributes:
        names: files that need not come, with their attributes.
        late: names that came to be there meanwhile: the peer was not at the end of what the
            earlier run had asked it for.
    """

    def __init__(
        self,
        mark: Mark | None,
        existing: Mapping[str, Entry],
        sink: Sink,
        name: Callable[[str], str],
        compare: Compare,
        equal_small: EqualSmall,
        spares: bool,
    ) -> None:
        self._mark, self._existing, self._sink = mark, existing, sink
        self._name, self._spares = name, spares
        self._compare, self._equal_small = compare, equal_small
        self._doubtful: list[Entry] = []
        self.names: dict[str, Attr] = {}
        self.late: list[Entry] = []

    @property
    def is_one(self) -> bool:
        """Whether there was an earlier run."""
        return self._mark is not None

    def brought(self, name: str) -> bool:
        """Whether that brought what has a name in the target; "." is the target itself."""
        if self._mark is None:
            return False
        there = self._existing.get(name)
        if name == ".":
            return self._mark.brought(name, is_dir=True)
        return there is not None and self._mark.brought(name, there.attr.is_dir)

    def refuses(self, entry: Entry) -> bool:
        """Whether a name may not be replaced, though those that were brought are."""
        return self._spares and entry.name in self._existing and not self.brought(entry.name)

    def takes(self, entry: Entry) -> bool:
        """Whether a file of the source may be brought already: settle() will say."""
        options, there = self._sink.options, self._existing.get(entry.name)
        if options.restart or options.update or options.checksum or self._mark is None:
            return False
        if there is None or not there.attr.is_file:
            return False
        # What was there before may have been replaced, if that was asked for.
        if not (self.brought(entry.name) or options.replace):
            return False
        self._doubtful.append(entry)
        return True

    def _count(self, entry: Entry) -> None:
        self.names[entry.name] = entry.attr
        self._sink.report.brought.append((self._name(entry.name), entry.attr.bytes))

    async def settle(self) -> list[Entry]:
        """Compare files that may be brought; those that are to come after all."""
        entries, self._doubtful = self._doubtful, []
        return await self._settle(entries, errno.ESTALE, CHANGED)

    async def settle_late(self) -> None:
        """Look at names that came to be there meanwhile."""
        await self._settle(self.late, errno.EEXIST, TEXTS[errno.EEXIST])

    async def _settle(self, entries: list[Entry], code: int, text: str) -> list[Entry]:
        todo, others = iter(entries), list[Entry]()
        options = self._sink.options
        told = await self._equal_small(entries)

        async def worker() -> None:
            for entry in todo:
                name = self._name(entry.name)
                try:
                    is_equal = told.get(entry.name)
                    if is_equal is None:
                        is_equal = (await self._compare(entry.name))[1]
                except CarefulError as error:
                    self._sink.fail(name, error)
                    continue
                if is_equal:
                    self._count(entry)
                elif options.replace:
                    others.append(entry)
                else:
                    self._sink.fail(name, CarefulError(code, text, name))

        await all_of(*(worker() for _ in range(min(options.files_in_flight, len(entries)))))
        return others
