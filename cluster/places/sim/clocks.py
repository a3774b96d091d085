"""A node's clock: what it says at a moment of virtual time, and when it is going to say something."""

from __future__ import annotations

from cluster.places.base import ClockSetting

#: No clock of a node starts at the same reading as another's: nothing may depend on comparing them.
START_MAX_NS = 10**15


class SimClock:
    """Runs at its own rate from its own start, and can be turned. Times are nanoseconds."""

    __slots__ = ("_base", "_last", "_monotonic", "_offset", "_rate", "_started_ahead")

    def __init__(self, start_ns: int, *, monotonic: bool) -> None:
        """One that is `monotonic` stands still where it would go back, until time has caught up."""
        self._monotonic = monotonic
        self._last = start_ns
        self._offset = start_ns  # what it is ahead of virtual time at `_base`
        self._base = 0
        self._rate = 1.0
        self._started_ahead = start_ns

    def read(self, now: int) -> int:
        reading = now + self._offset if self._rate == 1.0 else self._raw(now)
        if self._monotonic:
            if reading < self._last:
                return self._last
            self._last = reading
        return reading

    def _raw(self, now: int) -> int:
        if self._rate == 1.0:
            return now + self._offset
        return self._base + self._offset + int((now - self._base) * self._rate)

    def moment(self, reading: int, now: int) -> int:
        """When it will say `reading`, if it isn't turned before; `now` if it has said so already."""
        if reading <= self.read(now):
            return now
        missing = reading - self._raw(now)
        if self._rate == 1.0:
            return now + missing
        return now + int(missing / self._rate) + 1

    def turn(self, setting: ClockSetting, now: int) -> None:
        self._offset = self.read(now) + setting.step_ns - now
        self._base, self._rate = now, setting.rate

    def make_true(self, now: int) -> None:
        """Back to the true rate, and to its reading as if it had never been turned; a monotonic one keeps what it is
        ahead."""
        ahead = self.read(now) - now
        self._offset = max(ahead, self._started_ahead) if self._monotonic else self._started_ahead
        self._base, self._rate = now, 1.0
