"""The burst that the path from a peer holds, measured by our carefuld on demand.

The peer sends trains, our XDP counts them, and our engine computes the burst
(datapath/link/peer/train.c). This module requests the measurement and reads the result.
"""

from __future__ import annotations

import errno
import time

from careful._abi import CData, lib
from careful.errors import CarefulError
from careful.measure.probes.exchange import peer_info
from careful.measure.probes.session import Session

#: Longer than the engine's own limit, seconds.
_PATIENCE_S = 10.0
_PAUSE_S = 0.01
_REFUSED = {
    errno.EALREADY: "its burst was measured less than 10 s ago: try again later, or as root",
    errno.EBUSY: "data to this host is under way, and would be cut off: measure when it is idle",
    errno.EOPNOTSUPP: "our carefuld is older than this command: take careful down and up again",
}


class BurstSession(Session):
    """Requests the burst from one peer."""

    def measure(self) -> CData:
        """Measures in a new epoch of the session; returns the new `struct careful_peer_info`.

        Raises CarefulError: transfers to the peer are under way, or its session ended.
        """
        return self._repeated(self._measure_once)

    def _measure_once(self) -> CData:
        before = self._info().bursts_measured
        try:
            self._client.call(lib.CAREFUL_IPC_BURST, self.host, peer=self._peer)
        except CarefulError as error:
            if error.errno in _REFUSED:
                raise CarefulError(error.errno, _REFUSED[error.errno], self.host) from None
            raise self._explained(error, 0) from None
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            info = self._info()
            if info.bursts_measured != before and info.state == lib.CAREFUL_PEER_UP:
                return info
            time.sleep(_PAUSE_S)
        raise CarefulError(errno.ETIMEDOUT, "its session does not come up again", self.host)

    def _info(self) -> CData:
        return peer_info(self._client, self._address, self.host)
