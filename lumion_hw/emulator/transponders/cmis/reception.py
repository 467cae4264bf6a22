"""Receiver model that computes bit errors from the received light (not from a standard).

``1/SNR = 1/SNR_ase + 1/SNR_impl + 1/SNR_rx``, from amplifier noise (``SNR_ase = OSNR * 12.5 GHz / symbol rate``),
electronics and receiver noise. Penalties are subtracted in dB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lumion_hw.emulator.transponders.cmis.optics import ReceivedLight
from lumion_hw.emulator.transponders.cmis.profiles import LineFormat, ReceiverProfile
from lumion_hw.quantities import db_from_ratio, ratio_from_db

OSNR_BANDWIDTH_GHZ = 12.5
"""Noise bandwidth of an OSNR in GHz: 0.1 nm at 1550 nm."""
PENALTIES_DB = {"pdl_db": (2.5, 0.8), "dgd_ps": (10.0, 0.5), "sop_rate_krad_per_s": (50.0, 0.3)}
"""Size of each impairment and its penalty in dB, which is quadratic. Lock is lost at twice the size."""
MAX_OSNR_DB = 45.0
"""Highest measurable OSNR in dB."""
_NO_SIGNAL_DBM = -60.0


@dataclass(frozen=True)
class Reception:
    """Measurement of the received light by a receiver.

    Attributes:
        reason: Reason for missing lock: ``dark``, ``format``, ``polarization``, ``offset``, ``dispersion``,
            ``dynamics`` or ``noise``; empty for a receiver with lock.
        osnr_db: OSNR, limited to the measurable range.
        offset_mhz: Carrier frequency minus local oscillator frequency.
    """

    reason: str = "dark"
    esnr_db: float = 0.0
    osnr_db: float = 0.0
    ber: float = 0.5
    offset_mhz: float = 0.0


def penalty_db(light: ReceivedLight) -> float:
    """Return the SNR penalty of PDL, DGD and other impairments in dB."""
    total = 0.0
    for name, (reference, penalty) in PENALTIES_DB.items():
        # Quadratic: each penalty is given at one value of its impairment.
        total += penalty * (getattr(light, name) / reference) ** 2
    return total


def esnr_db(light: ReceivedLight, receiver: ReceiverProfile, symbol_rate_gbd: float) -> float:
    """Return the receiver's electrical SNR after penalties in dB."""
    power_dbm = max(light.signal_power_dbm, _NO_SIGNAL_DBM)
    # With a local oscillator the SNR is proportional to the power, without it to the power squared.
    receiver_db = receiver.reference_snr_db + receiver.snr_per_db * (power_dbm - receiver.reference_dbm)
    inverse = 1.0 / ratio_from_db(receiver.implementation_snr_db) + 1.0 / ratio_from_db(receiver_db)
    penalty = 0.0
    if receiver.coherent:
        inverse += symbol_rate_gbd / OSNR_BANDWIDTH_GHZ / ratio_from_db(min(light.osnr_db, 200.0))
        penalty = penalty_db(light)
    return -db_from_ratio(inverse) - penalty


def bit_error_ratio(snr_db: float, line: LineFormat) -> float:
    """Return the bit error ratio: 3/8 erfc(sqrt(SNR/10)) for 16QAM and PAM4, 1/2 erfc(sqrt(SNR/2)) for QPSK."""
    snr = ratio_from_db(snr_db)
    # Gray-coded, in Gaussian noise; per quadrature, 16QAM is PAM4.
    if line.bits_per_symbol == 4:
        return 0.5 * math.erfc(math.sqrt(snr / 2.0))
    return 0.375 * math.erfc(math.sqrt(snr / 10.0))


def receive(
    light: ReceivedLight, receiver: ReceiverProfile, media_interface: int, oscillator_mhz: float, noise_db: float = 0.0
) -> Reception:
    """Return lock, SNR and bit error ratio of a receiver.

    Args:
        light: Light at the receiver.
        receiver: Properties of the receiver.
        media_interface: Configured media interface id.
        oscillator_mhz: Frequency of the local oscillator; not used by direct detection.
        noise_db: Random error, added to the SNR.
    """
    line = receiver.formats[media_interface]
    if light.signal_power_dbm <= _NO_SIGNAL_DBM:
        return Reception()
    offset = oscillator_mhz if light.frequency_mhz is None else light.frequency_mhz
    offset_mhz = offset - oscillator_mhz if receiver.coherent else 0.0
    snr_db = esnr_db(light, receiver, line.symbol_rate_gbd) + noise_db
    ber = bit_error_ratio(snr_db, line)
    obstacle = _lock_obstacle(light, receiver, media_interface, offset_mhz) or (
        "noise" if ber > receiver.lol_ber else ""
    )
    return Reception(obstacle, snr_db, min(light.osnr_db, MAX_OSNR_DB), ber, offset_mhz)


def _lock_obstacle(light: ReceivedLight, receiver: ReceiverProfile, media_interface: int, offset_mhz: float) -> str:
    """Return the reason why the receiver cannot lock at any SNR; empty if it can."""
    coherent = receiver.coherent
    too_large = any(getattr(light, name) > 2 * reference for name, (reference, _) in PENALTIES_DB.items())
    obstacles = {
        "format": light.media_interface not in (None, media_interface),
        "polarization": coherent and light.polarization_rank < 2,
        "offset": coherent and abs(offset_mhz) > receiver.max_offset_mhz,
        "dispersion": coherent and abs(light.cd_ps_per_nm) > receiver.max_cd_ps_per_nm,
        "dynamics": coherent and too_large,
    }
    return next((name for name, applies in obstacles.items() if applies), "")


def frame_error_ratio(ber: float, line: LineFormat) -> float:
    """Return the fraction of frames that the error correction cannot correct."""
    if ber <= 0.0:
        return 0.0
    # Model: from nearly none to nearly all frames within about 0.05 decades of the limit.
    return 0.5 * math.erfc(50.0 * math.log10(line.fec_limit_ber / ber))
