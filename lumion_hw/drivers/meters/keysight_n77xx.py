"""Driver for Keysight (Agilent) N7744A, N7745A, N7744C and N7745C multiport optical power meters.

Source: the N774xC Programming Guide.
"""

from __future__ import annotations

import struct

from lumion_hw.drivers.meters.keysight_functions import LARGEST_LOG, LoggingKeysightMeter
from lumion_hw.drivers.meters.keysight_meter import Head
from lumion_hw.errors import IdentityError

PORTS = {"N7744A": 4, "N7745A": 8, "N7744C": 4, "N7745C": 8}
"""Supported models and their numbers of ports."""


class KeysightN77xx(LoggingKeysightMeter):
    """Driver of one meter; implements ``LoggingMeter``. Thread-safe; every setting is read back.

    A channel is a port. Arguments as for :class:`~lumion_hw.drivers.meters.keysight_meter.KeysightMeter`.
    """

    models = tuple(PORTS)
    highest_range_dbm = 10.0
    max_samples = LARGEST_LOG

    def read_heads(self) -> tuple[Head, ...]:
        """Return the ports of the instrument. Raises ``IdentityError`` if the ports differ from those of its model."""
        n_ports = PORTS[self.model.upper()]
        payload = self.session.query_block("READ:POW:ALL:CONF?")
        if payload != b"".join(struct.pack("<HH", port, 1) for port in range(1, n_ports + 1)):
            raise self.session.error(
                IdentityError,
                f"expected the {n_ports} ports of a {self.model}; found the channel map {payload.hex(' ')}",
                hint="Check the model in the bench file.",
            )
        return tuple(Head(f"SENS{port}", f"SENS{port}", f"READ{port}", port) for port in range(1, n_ports + 1))
