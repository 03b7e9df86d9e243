"""MPI's words over events: Send and Recv, Bcast, Allreduce, Alltoall of NumPy arrays.

An example of what can be built from them. A Comm has the methods of mpi4py's communicators that
take buffers, by the same names. Owns how event numbers follow from the order of its calls, and how
large arrays are cut into events, so that nobody sends far ahead of who receives. fft.py uses it.

A call for all ranks (Barrier, Bcast ...) is a step; between two steps a message has a tag, and
tags ascend. A number is the step, whether it is a message's, the tag, and the piece of the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from careful.event.group import ANY, Events

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

SUM, PROD, MAX, MIN = np.add, np.multiply, np.maximum, np.minimum
ANY_SOURCE = ANY

#: Of an array in one event: what all others send at once has to find room. Each is a turn of the
#: ranks, so fewer of them are faster where a program waits for its core.
PIECE_BYTES = 1 << 16
#: Ranks for which there is room for that; of more, pieces are smaller.
_CROWD = 8
TAG_MAX = (1 << 14) - 1
_PIECES_MAX = 1 << 16


class Comm:
    """The ranks of a group.

    Args:
        events: of join(); nothing else sends or receives there meanwhile.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self.rank, self.size = events.rank, events.nodes
        self._piece = min(PIECE_BYTES, PIECE_BYTES * _CROWD // events.nodes)
        self._step = self._tag = 0

    def Get_rank(self) -> int:
        """This node's number."""
        return self.rank

    def Get_size(self) -> int:
        """How many there are."""
        return self.size

    def Send(self, buf: Array, dest: int, tag: int | None = None) -> None:
        """Send an array to a rank, which receives it with the same tag.

        Args:
            buf: contiguous, of less than 2 GiB.
            dest: a rank.
            tag: 0 to TAG_MAX, greater than the last since the last step; None: one more.

        Raises:
            ValueError: the array or the tag cannot be.
            CarefulError: a node failed; as Events.send().
        """
        data, first = flat(buf), self._message(tag)
        for number, at in self._pieces(len(data)):
            self._events.send(data[at : at + self._piece], first + number, dest)

    def Recv(self, buf: Array, source: int | None = ANY_SOURCE, tag: int | None = None) -> int:
        """Receive an array, which may be shorter; bytes that came.

        Args:
            buf: contiguous, where it goes.
            source: a rank, or ANY_SOURCE.
            tag: as of Send().

        Raises:
            ValueError: it has no room, or the tag cannot be. CarefulError: a node failed.
        """
        data, first, at = flat(buf), self._message(tag), 0
        for number in range(_PIECES_MAX):
            got = self._events.receive(first + number, source, into=data[at : at + self._piece])
            source, at = got.source, at + got.nbytes
            if got.nbytes < self._piece:
                break
        return at

    def Sendrecv(
        self, sendbuf: Array, dest: int, recvbuf: Array, source: int, tag: int | None = None
    ) -> int:
        """Send one array and receive another, as in a ring; bytes that came. As Send() and Recv().

        All may do so at once: neither waits for the other.
        """
        out, into, first = flat(sendbuf), flat(recvbuf), self._message(tag)
        left, at, over, number = iter(self._pieces(len(out))), 0, False, 0
        for number in range(_PIECES_MAX):
            piece = next(left, None)
            if piece is not None:
                self._events.send(out[piece[1] : piece[1] + self._piece], first + number, dest)
            if not over:
                part = into[at : at + self._piece]
                got = self._events.receive(first + number, source, into=part)
                at, over = at + got.nbytes, got.nbytes < self._piece
            if piece is None and over:
                break
        return at

    def Barrier(self) -> None:
        """Go on when all ranks are here."""
        nothing = np.empty(0, np.uint8)
        self._exchange([nothing] * self.size, [nothing] * self.size, 0)

    def Bcast(self, buf: Array, root: int = 0) -> None:
        """The root's array becomes that of all: one frame a fragment, where one reaches all."""
        data, first = flat(buf), self._next()
        if self.size == 1:
            return
        if self.rank == root:
            self._events.send(data, first)
        else:
            self._into(data, first, root)

    def Scatter(self, sendbuf: Array | None, recvbuf: Array, root: int = 0) -> None:
        """Row r of the root's array becomes the array of rank r."""
        first = self._next()
        if self.rank != root:
            self._into(flat(recvbuf), first, root)
            return
        rows = self._rows(sendbuf, recvbuf)
        for rank, row in enumerate(rows):
            if rank != root:
                self._events.send(row, first, rank)
        flat(recvbuf)[:] = rows[root]

    def Gather(self, sendbuf: Array, recvbuf: Array | None, root: int = 0) -> None:
        """The array of rank r becomes row r of the root's."""
        first = self._next()
        if self.rank != root:
            self._events.send(flat(sendbuf), first, root, crowd=True)
            return
        rows = self._rows(recvbuf, sendbuf)
        rows[root][:] = flat(sendbuf)
        for rank, row in enumerate(rows):
            if rank != root:
                self._into(row, first, rank)

    def Allgather(self, sendbuf: Array, recvbuf: Array) -> None:
        """The array of rank r becomes row r of everybody's."""
        rows = self._rows(recvbuf, sendbuf)
        self._exchange([flat(sendbuf)] * self.size, rows, len(rows[0]))

    def Alltoall(self, sendbuf: Array, recvbuf: Array) -> None:
        """Row s of rank r becomes row r of rank s."""
        rows = self._rows(recvbuf)
        self._exchange(self._rows(sendbuf, recvbuf[0]), rows, len(rows[0]))

    def Reduce(
        self, sendbuf: Array, recvbuf: Array | None, op: np.ufunc = SUM, root: int = 0
    ) -> None:
        """All arrays become one at the root, in the order of the ranks."""
        rows = np.empty((self.size, *sendbuf.shape), sendbuf.dtype) if self.rank == root else None
        self.Gather(sendbuf, rows, root)
        if rows is not None:
            assert recvbuf is not None
            _reduced(rows, op, recvbuf)

    def Allreduce(self, sendbuf: Array, recvbuf: Array, op: np.ufunc = SUM) -> None:
        """All arrays become one at every rank: in the order of the ranks, the same to the last bit.

        A small one goes to all. Of a large one, each rank reduces a share, and sends that to all.
        """
        mine, whole = sendbuf.reshape(-1), _same(recvbuf, sendbuf).reshape(-1)
        if sendbuf.nbytes <= self._piece or self.size == 1:
            rows = np.empty((self.size, mine.size), mine.dtype)
            self.Allgather(mine, rows)
            _reduced(rows, op, whole)
            return
        ends = [mine.size * rank // self.size for rank in range(self.size + 1)]
        cuts = [slice(*pair) for pair in pairwise(ends)]
        own = cuts[self.rank]
        most = max(one.stop - one.start for one in cuts) * mine.itemsize
        rows = np.empty((self.size, own.stop - own.start), mine.dtype)
        self._exchange([flat(mine[cut]) for cut in cuts], [flat(row) for row in rows], most)
        _reduced(rows, op, whole[own])
        self._exchange([flat(whole[own])] * self.size, [flat(whole[cut]) for cut in cuts], most)

    def _next(self) -> int:
        """The first number of the next step."""
        self._step, self._tag = self._step + 1, -1
        return self._step << 31

    def _message(self, tag: int | None) -> int:
        """The first number of a message."""
        tag = self._tag + 1 if tag is None else tag
        if not self._tag < tag <= TAG_MAX:
            raise ValueError(
                f"tag {tag}: {self._tag + 1} to {TAG_MAX}; they ascend to the next step"
            )
        self._tag = tag
        return self._step << 31 | 1 << 30 | tag << 16

    def _pieces(self, nbytes: int) -> Sequence[tuple[int, int]]:
        """Number and begin of each piece of a message; the last one is shorter than others."""
        count = nbytes // self._piece + 1
        if count > _PIECES_MAX:
            raise ValueError(
                f"{nbytes} bytes: at most {_PIECES_MAX * self._piece - 1} in a message"
            )
        return [(number, number * self._piece) for number in range(count)]

    def _exchange(self, out: Sequence[Bytes], into: Sequence[Bytes], most: int) -> None:
        """All send to all: a step; `most`: bytes of the largest part that anybody has."""
        first = self._next()
        others = [rank for rank in range(self.size) if rank != self.rank]
        into[self.rank][:] = out[self.rank]
        same = all(one is out[0] for one in out)
        for number, at in enumerate(range(0, max(most, 1), self._piece)):
            if not others:
                return
            part, event = slice(at, at + self._piece), first + number
            for rank in [ANY] if same else others:
                data = out[0 if rank is None else rank]
                self._events.send(data[part], event, rank, crowd=True)
            for rank in others:
                self._into(into[rank][part], event, rank)

    def _into(self, data: Bytes, event: int, rank: int) -> None:
        """Receive what has to be exactly so long."""
        got = self._events.receive(event, rank, into=data)
        if got.nbytes != len(data):
            raise ValueError(f"rank {rank} sent {got.nbytes} bytes, not {len(data)}")

    def _rows(self, array: Array | None, like: Array | None = None) -> list[Bytes]:
        """An array's rows, one for each rank, each as large as another array."""
        if array is None or len(array) != self.size:
            raise ValueError(f"an array with a row for each of {self.size} ranks is needed")
        flat(array)  # contiguous, and so are its rows
        if like is not None and array[0].nbytes != like.nbytes:
            raise ValueError(f"rows of {array[0].nbytes} bytes, not {like.nbytes}")
        return [flat(np.asarray(row)) for row in array.reshape(self.size, -1)]


def flat(array: Array) -> Bytes:
    """An array's memory as bytes: nothing is copied.

    Raises:
        ValueError: it is not contiguous.
    """
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous: numpy.ascontiguousarray() copies it")
    return array.reshape(-1).view(np.uint8)


def _same(array: Array, like: Array) -> Array:
    if (array.size, array.dtype) != (like.size, like.dtype):
        raise ValueError(f"{array.size} of {array.dtype}, not {like.size} of {like.dtype}")
    flat(array), flat(like)
    return array


def _reduced(rows: Array, op: np.ufunc, into: Array) -> None:
    """Row by row, in order."""
    np.copyto(into, rows[0].reshape(into.shape))
    for row in rows[1:]:
        op(into, row.reshape(into.shape), out=into)
