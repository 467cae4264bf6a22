"""Fit measured spectra of ring resonators, beside an independent fit of each resonance.

Run: .venv/bin/python benchmarks/rings.py DIRECTORY

DIRECTORY holds CSV files with one row per quantity: ``wavelength`` in nm and ``channel_N`` in dBm, such as the public
ring spectra of SiEPIC/SiEPIC_Analysis. The independent fit is a Lorentzian times a straight line in the window of one
resonance, by scipy; it shares no code with ``fit_ring``.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit

from lumion_hw.acquisition import ScanAxis, ScanData, ScanPlan, SweptSetting, fit_ring
from lumion_hw.acquisition.columns import Column
from lumion_hw.acquisition.journal import LogHeader, LogTable
from lumion_hw.acquisition.scan_plan import as_base64
from lumion_hw.errors import ConfigError

_DARK_DBM = -45.0
_WINDOW = 2.5
"""Half width of the window of the independent fit, in full widths at half maximum."""
_NM_THZ = 299_792.458

Real = NDArray[np.float64]


def spectra(path: Path) -> Iterator[tuple[str, Real, Real]]:
    """Yield the name, wavelengths in nm and power in dBm of each channel with light."""
    rows: dict[str, Real] = {}
    with path.open(newline="") as file:
        for name, *values in (row for row in csv.reader(file) if row and not row[0].startswith("#")):
            rows[name.strip()] = np.array([float(value) for value in values if value.strip()])
    for name, power_dbm in rows.items():
        if name.startswith("channel_") and power_dbm.max() > _DARK_DBM:
            yield name, rows["wavelength"], power_dbm


def scan_of(wavelength_nm: Real, power_dbm: Real) -> ScanData:
    """Return a spectrum as the data of a wavelength scan."""
    swept = SweptSetting("laser.wavelength_nm", "laser", "nm", "number", (), as_base64(wavelength_nm))
    plan = ScanPlan((ScanAxis((swept,), len(wavelength_nm)),))
    columns = (
        Column("laser.wavelength_nm.set", "d", "nm"),
        Column("scan.by_instrument", "scan", "1"),
        Column("meter.power.1", "meter", "dBm"),
    )
    values = np.stack([wavelength_nm, np.zeros(len(wavelength_nm)), power_dbm], axis=1)
    numbers = np.arange(len(wavelength_nm), dtype=np.uint32)
    header = LogHeader("spectrum", columns, 0.0, len(numbers), "2026-01-01T00:00:00.000+00:00", scan=plan)
    return ScanData.of(header, LogTable(numbers, numbers * 1.0, values, np.zeros(values.shape, dtype=np.uint8)))


def own_fwhm_ghz(thz: Real, power_w: Real, centre_thz: float, fwhm_ghz: float) -> float:
    """Return the width of one resonance by an independent fit; NaN if it does not converge."""
    window = np.abs(thz - centre_thz) < _WINDOW * fwhm_ghz * 1e-3
    if window.sum() < 8:
        return float("nan")
    x, y = 1e3 * (thz[window] - centre_thz), power_w[window] / power_w[window].max()

    def curve(x: Real, top: float, slope: float, depth: float, at: float, width: float) -> Real:
        return (top + slope * x) * (1.0 - depth / (1.0 + (2.0 * (x - at) / width) ** 2))

    depth = 0.5 if y[len(y) // 2] < np.median(y[[0, -1]]) else -5.0
    try:
        fitted, _ = curve_fit(curve, x, y, (float(np.median(y[[0, -1]])), 0.0, depth, 0.0, fwhm_ghz), maxfev=20_000)
    except RuntimeError:
        return float("nan")
    return abs(float(fitted[4]))


def main() -> None:
    """Print one row per spectrum."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    differences = []
    print("| spectrum | FSR GHz | Q | extinction dB | resonances | width over own fit, median | largest difference |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(parser.parse_args().directory.glob("*.csv")):
        for name, wavelength_nm, power_dbm in spectra(path):
            label = f"{path.stem.split('_', 1)[1].rsplit('_', 2)[0]} {name[-1]}"
            try:
                fit = fit_ring(scan_of(wavelength_nm, power_dbm), "meter.power.1")
            except ConfigError as error:
                print(f"| {label} | refused: {error.message} | | | | | |")
                continue
            thz, power_w = _NM_THZ / wavelength_nm, 10.0 ** (power_dbm / 10.0)
            own = [
                own_fwhm_ghz(thz, power_w, resonance.frequency_thz, resonance.fwhm_ghz) for resonance in fit.resonances
            ]
            ratio = np.array([resonance.fwhm_ghz for resonance in fit.resonances]) / np.array(own)
            differences.append(float(np.nanmedian(ratio) - 1.0))
            above = "> " if np.isinf(fit.extinction_error_db) else ""
            print(
                f"| {label} | {fit.fsr_ghz:.1f} | {fit.q:.0f} | {above}{fit.extinction_db:.1f} | {len(ratio)} "
                f"| {differences[-1]:+.1%} | {np.nanmax(np.abs(ratio - 1.0)):.0%} |"
            )
    middle, low, high = np.percentile(differences, (50, 10, 90))
    print(f"\n{len(differences)} spectra: median difference {middle:+.1%}; 8 of 10 between {low:+.1%} and {high:+.1%}")


if __name__ == "__main__":
    main()
