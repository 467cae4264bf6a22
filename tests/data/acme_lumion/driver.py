"""The driver of the ACME PM2."""

from __future__ import annotations

from lumion_hw import NotSupportedError
from lumion_hw.interfaces import PowerReading, RangeState
from lumion_hw.sessions import ScpiSession


class AcmePm2:
    """Reads two channels; has nothing to set."""

    channels = (1, 2)

    def __init__(self, link, clock, device):
        self._clock = clock
        self._session = ScpiSession(link, clock, device=device)
        _, self.model, self.serial, _ = self._session.open().split(",")

    def set_wavelength_nm(self, channel, wavelength_nm): ...

    def set_averaging_s(self, channel, averaging_s): ...

    def set_range_dbm(self, channel, range_dbm): ...

    def settings(self, channel):
        raise NotSupportedError("the ACME PM2 has nothing to set", command="settings")

    def limits(self, channel):
        raise NotSupportedError("the ACME PM2 has nothing to set", command="limits")

    def read(self, channel):
        value_w = float(self._session.query(f"READ{channel}?"))
        return PowerReading(channel, RangeState.OK, self._clock.now(), value_w)

    def close(self):
        self._session.close()
