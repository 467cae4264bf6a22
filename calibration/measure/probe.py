"""Interface of a calibration to a bench: one source at a time, heater currents, monitor readings.

:class:`calibration.measure.bench_probe.BenchProbe` implements :class:`Probe` for an open bench.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from calibration.measure.plug_requests import Fibre
from calibration.model.arrays import Real
from calibration.model.device_under_test import DeviceUnderTest
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.quantities import frequency_hz_from_wavelength_m, wavelength_m_from_frequency_hz


class Probe(Protocol):
    """Access to the mesh under calibration."""

    @property
    def mesh(self) -> MeshTopology:
        """Layout of the mesh under calibration."""

    @property
    def sources(self) -> tuple[int, ...]:
        """Ports with a light source; for a source with two ports, the first one."""

    @property
    def second_ports(self) -> Mapping[int, int]:
        """Second port of each source with two ports, by its first port."""

    @property
    def monitors(self) -> tuple[int, ...]:
        """Port of every monitor, in the order of :meth:`measure`."""

    @property
    def heater_max_ma(self) -> float:
        """Largest heater current allowed."""

    @property
    def current_step_ma(self) -> float:
        """Smallest step of a heater current; 0 if unknown."""

    @property
    def monitor_step_ma(self) -> float:
        """Smallest photocurrent step."""

    def light_only_port(self, port: int | None) -> None:
        """Switch on the source at one port and all others off; with ``None`` all are off."""

    def plug(self, fibre: Fibre, port: int, reason: str = "") -> None:
        """Have a fibre that is moved by hand connected to a port, with heaters and sources off.

        Args:
            fibre: The fibre of the laser or of the meter.
            port: Port of the mesh.
            reason: Why a port is requested again.

        Raises:
            CalibrationError: No operator can be asked.
        """

    def assume_plugged(self, fibre: Fibre, port: int) -> None:
        """Assume that a fibre that is moved by hand is connected to a port."""

    def tunable_hz(self, port: int) -> tuple[float, float] | None:
        """Return the lowest and highest frequency of a source; ``None`` if it is not tunable."""

    def tune(self, port: int, frequency_hz: float) -> float:
        """Tune a source to the nearest possible frequency; return the reported frequency.

        Raises:
            LimitError: The frequency is out of range; nothing was changed.
            ConfigError: The source is not tunable.
        """

    def launched_dbm(self, port: int) -> float:
        """Return the reported launch power of a source in dBm, in the fibre at the facet."""

    def measure(self, currents_ma: Real) -> Real:
        """Set the heaters, wait until they have settled, and read all monitors.

        Args:
            currents_ma: Shape ``(2 n_pucs,)``, index 2·PUC + arm (upper arm first).

        Returns:
            Photocurrents in mA, shape ``(n_monitors,)``; NaN for saturated monitors.
        """

    def measure_batch(self, currents_ma: Real) -> Real:
        """Measure n settings one after the other with the same light, as :meth:`measure`; the last stays active.

        Args:
            currents_ma: Shape ``(n, 2 n_pucs)``.

        Returns:
            Photocurrents in mA, shape ``(n, n_monitors)``.
        """

    def fibre_dbm(self) -> dict[int, float]:
        """Return the power in dBm that leaves each port into its fibre, read by external meters.

        Ports without a meter or with too little light are missing.
        """

    @property
    def measures_resistances(self) -> bool:
        """Whether the controller measures the resistance of the heaters."""

    def heater_resistances_ohm(self) -> Real:
        """Return the resistance of every heater at the present setting in Ω, shape ``(2 n_pucs,)``; NaN if unknown."""

    def elapsed_s(self) -> float:
        """Return the time since the probe was opened, by the clock of the bench."""

    def rest(self, duration_s: float) -> None:
        """Wait without a change of the setting."""

    def switch_everything_off(self) -> None:
        """Switch heaters and sources off."""


TUNING_ERROR_HZ = 0.2e9
"""Standard deviation in Hz of the frequency of a source that is tuned away from the reference: 1.6 pm (assumption)."""


def tune_sources(probe: Probe, frequency_hz: float, ports: Iterable[int]) -> dict[int, float]:
    """Tune sources to a frequency; return the reported frequencies by port.

    Raises:
        LimitError: The frequency is out of the range of a source.
    """
    return {port: probe.tune(port, frequency_hz) for port in ports}


def tune_to_record(probe: Probe, record: CalibrationRecord) -> None:
    """Tune all tunable sources to the wavelength of a record.

    Raises:
        LimitError: The wavelength is out of the range of a source.
    """
    tune_sources(probe, record.reference_hz, [port for port in probe.sources if probe.tunable_hz(port) is not None])


def check_wavelengths(wavelengths_nm: Sequence[float], device: DeviceUnderTest) -> None:
    """Raise an error if the bench cannot be calibrated at these wavelengths; nothing is measured.

    Raises:
        ConfigError: No source is tunable, or fibres are moved by hand.
        LimitError: A wavelength is out of the range of a source.
    """
    # This check comes before the alignment of the light, which takes a while.
    if wavelengths_nm and (device.sources_by_hand or device.monitors_by_hand):
        raise ConfigError(
            "further wavelengths are not supported with fibres that are moved by hand",
            hint="Calibrate at one wavelength, or use a switch instead of moving the fibres.",
        )
    if wavelengths_nm and not device.tunable_hz:
        raise ConfigError(
            "further wavelengths require a tunable source, but this bench has none",
            hint="Connect a tunable laser or a coherent module to the mesh, see 'wiring.inputs' in the bench file.",
        )
    for nm in wavelengths_nm:
        for port, (low_hz, high_hz) in device.tunable_hz.items():
            requested_hz = frequency_hz_from_wavelength_m(nm * 1e-9)
            limit_hz = min(max(requested_hz, low_hz), high_hz)
            if limit_hz != requested_hz:
                text = f"the source at port {port} cannot be tuned to this wavelength"
                limit_nm = wavelength_m_from_frequency_hz(limit_hz) * 1e9
                raise LimitError(text, requested=nm, limit=limit_nm, unit="nm")
