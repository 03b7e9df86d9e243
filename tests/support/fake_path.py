"""Fakes a path in virtual time for pathchar; its routers may be silent."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

from careful.errors import CarefulError
from careful.measure.path.hops import Path
from careful.measure.path.pathchar import Options, Pathchar
from careful.measure.probes.udp import Answer, Reply

REPLY_BYTES = 576
#: 10, 5, 2 and 8 Mbit/s.
RATES = (819.2, 1638.4, 4096.0, 1024.0)


@dataclass
class FakePath:
    """Hops with an overhead, a G and a delay each; the last one is the host."""

    G_us_per_KiB: tuple[float, ...] = RATES
    g_us: float = 50.0
    delay_us: float = 300.0
    jitter_us: float = 10.0
    own_us_per_KiB: float = 0.0  # time of a send here
    silent: set[int] = field(default_factory=set)
    limited: set[int] = field(default_factory=set)
    two_faced: set[int] = field(default_factory=set)
    deaf: set[int] = field(default_factory=set)  # answer every third probe
    loss: float = 0.0
    mtu: dict[int, int] = field(default_factory=dict)  # of the link towards a hop
    speaks_of_mtu: bool = True
    refuses: int = 0
    change_at_s: float = 1e9
    down: int = 0  # the link towards this hop goes down
    down_at_s: float = 1e9
    says_so: bool = True  # the router before it reports this
    no_way_at_s: float = 1e9  # from then on, there is no route
    now_s: float = 0.0
    tokens: dict[int, float] = field(default_factory=dict)
    random: random.Random = field(default_factory=lambda: random.Random(5))
    sent: list[tuple[int, int]] = field(default_factory=list)
    busy_s: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def _pays(self, ttl: int) -> bool:
        """Linux's limit: six answers at once, then one a second."""
        tokens, at = self.tokens.get(ttl, 6.0), self.tokens.get(-ttl, self.now_s)
        tokens = min(6.0, tokens + self.now_s - at)
        self.tokens[-ttl] = self.now_s
        self.tokens[ttl] = tokens - 1 if tokens >= 1 else tokens
        return tokens >= 1

    def round_trip_us(self, ttl: int, size: int) -> float:
        factor = 2 if self.now_s > self.change_at_s else 1
        total = 0.0
        for G in self.G_us_per_KiB[:ttl]:
            total += 2 * (self.g_us + self.delay_us) + (size + REPLY_BYTES) * G * factor / 1024
        return total

    def probe(self, ttl: int, size: int, timeout_s: float) -> Reply:
        self.sent.append((ttl, size))
        if self.now_s > self.no_way_at_s:
            raise CarefulError(errno.ENETUNREACH, "", "h2")
        hop = min(ttl, len(self.G_us_per_KiB))
        for link, mtu in sorted(self.mtu.items()):
            if link <= hop and size > mtu:
                if self.speaks_of_mtu:
                    return Reply(Answer.TOO_BIG, mtu_bytes=mtu)
                self.now_s += timeout_s
                return Reply(Answer.SILENT)
        rtt_us = self.round_trip_us(hop, size)
        self.busy_s += rtt_us / 1e6
        own_us = 5 + self.own_us_per_KiB * size / 1024
        rtt_us += own_us + self.random.expovariate(1 / self.jitter_us)
        lost = self.random.random() < self.loss or hop in self.silent
        lost |= hop in self.deaf and len(self.sent) % 3 != 0
        lost |= rtt_us > timeout_s * 1e6
        if lost or (hop in self.limited and not self._pays(hop)):
            self.now_s += timeout_s
            return Reply(Answer.SILENT)
        self.now_s += rtt_us / 1e6
        if self.down and hop >= self.down and self.now_s > self.down_at_s:
            if self.says_so:
                return Reply(Answer.REFUSED, f"10.0.{self.down - 1}.1", rtt_us / 2, REPLY_BYTES)
            self.now_s += timeout_s - rtt_us / 1e6
            return Reply(Answer.SILENT)
        address = f"10.0.{hop}.1"
        if hop in self.two_faced and self.random.random() < 0.5:
            address = f"10.0.{hop}.2"
        answer = Answer.REACHED if hop == len(self.G_us_per_KiB) else Answer.EXPIRED
        if hop == self.refuses:
            answer = Answer.REFUSED
        return Reply(answer, address, rtt_us, REPLY_BYTES, own_us, code=13)

    def measure(self, mtu: int = 3826, **options: object) -> Path:
        return Pathchar(
            self.probe,
            mtu,
            Options(**options),  # type: ignore[arg-type]
            clock=lambda: self.now_s,
            sleep=self.sleep,
        ).run()
