"""Fibres of an emulated bench that an operator moves by hand from port to port."""

from __future__ import annotations

import numpy as np

from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import FibrePath, InputPath, OutputPath, Wiring


class MovedFibres:
    """Present port and coupling of every fibre that is moved by hand. No such fibre is plugged in at first.

    Args:
        sigma_db: Standard deviation of the coupling from one plugging to the next.
    """

    def __init__(self, wiring: Wiring, sigma_db: float, rng: np.random.Generator) -> None:
        self._sigma_db, self._rng = sigma_db, rng
        self._choices: dict[str, set[int]] = {}
        paths: list[InputPath | OutputPath] = [*wiring.inputs, *wiring.outputs]
        for path in paths:
            if path.by_hand:
                self._choices.setdefault(_device(path), set()).add(path.port)
        self._plugged: dict[str, tuple[int, float]] = {}
        self.pluggings = 0

    def plug(self, device: str, port: int) -> None:
        """Plug the fibre of a device into a port, with a new coupling.

        Raises:
            ConfigError: The bench file has no fibre of this device that is moved by hand to this port.
        """
        choices = sorted(self._choices.get(device, ()))
        if port not in choices:
            listed = ", ".join(map(str, choices)) or "none"
            raise ConfigError(
                f"no fibre that is moved by hand leads from {device} to port {port}",
                device=device,
                hint=f"Ports of {device} with by_hand: true: {listed}.",
            )
        self.pluggings += 1
        self._plugged[device] = port, self._sigma_db * float(self._rng.standard_normal())

    def is_plugged(self, path: InputPath | OutputPath | FibrePath) -> bool:
        """Return whether the fibre of a path is plugged in at the path's port; true for fixed fibres."""
        if isinstance(path, FibrePath) or not path.by_hand:
            return True
        return self._plugged.get(_device(path), (None, 0.0))[0] == path.port

    def coupling_db(self, path: InputPath | OutputPath | FibrePath) -> float:
        """Return the gain in dB of the present plugging; 0 for a fixed fibre."""
        if isinstance(path, FibrePath) or not path.by_hand:
            return 0.0
        return self._plugged.get(_device(path), (None, 0.0))[1]


def _device(path: InputPath | OutputPath) -> str:
    return path.source if isinstance(path, InputPath) else str(path.meter)
