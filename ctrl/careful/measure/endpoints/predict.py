"""LogP's prediction of a burst (P4): the time until its last message arrives."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from careful.measure.statistics.sample import Figure

#: Methods of prediction: by the network's gap, or by the sender's steps.
BY_GAP = "o + (n-1)g + L + o"
BY_STEPS = "os for each message, plus `or` for each reply that is back"


def by_gap_us(messages: int, g_us: float, rtt_us: float) -> float:
    """Returns P4's o + (n-1)g + L + o, µs. For o + L + o, it uses half of rtt_us."""
    return rtt_us / 2 + (messages - 1) * g_us


def by_steps_us(
    messages: int, os_us: float, or_us: float, rtt_us: float, capacity: int = 2**31
) -> float:
    """Predicts a burst's time, µs, if the sender's processor is the bottleneck, step by step.

    The gap os + or does not apply to short bursts. Until the first reply is back, only os passes
    between messages (P4, the send-only regime). Then the sender takes all replies that have arrived
    before the next message. capacity: most messages under way.
    """
    now_us = 0.0
    back_us: deque[float] = deque()
    for _ in range(messages):
        while len(back_us) >= capacity:
            now_us = max(now_us, back_us.popleft()) + or_us
        now_us += os_us
        back_us.append(now_us + rtt_us - os_us - or_us)
        while back_us and back_us[0] <= now_us:
            back_us.popleft()
            now_us += or_us
    for reply_us in back_us:
        now_us = max(now_us, reply_us) + or_us
    return now_us - rtt_us / 2


@dataclass(frozen=True)
class Trial:
    """A burst compared with the model: messages, times measured one way and predicted, µs.

    predicted_half_us: half of the prediction's interval; predicted_by: the method.
    """

    messages: int
    measured_us: Figure
    predicted_us: float
    predicted_half_us: float
    predicted_by: str

    @property
    def error(self) -> float | None:
        """The prediction's relative error; None without a measurement."""
        if not self.measured_us.estimate:
            return None
        return self.predicted_us / self.measured_us.estimate.value - 1

    @property
    def error_half(self) -> float:
        if self.error is None:
            return math.inf
        relative = self.predicted_half_us / self.predicted_us
        return (1 + self.error) * math.hypot(self.measured_us.relative, relative)
