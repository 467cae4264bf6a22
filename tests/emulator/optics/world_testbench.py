"""A small optical world for tests: two cells, chosen wiring, and physics without spread unless configured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.polarization import SqueezerProfile, Squeezers
from lumion_hw.emulator.optics.truth import draw_chains, draw_mesh
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.interfaces.wiring import InputPath, OutputPath, Wiring
from lumion_hw.mesh.layout.hexagonal import HexMesh

MESH = HexMesh.columns([2])
"""A mesh of two cells: 15 PUCs, 16 ports."""
ACCESS_DB = 6.0
P_PI_MW = 1.34
OHM = 1000.0
PI_MA = (P_PI_MW / OHM * 1e3) ** 0.5
"""Return the current that heats a heater to half a turn of phase."""
TAU_S = 100e-6

PLAIN = PhysicsParameters(
    puc_loss_sigma_db=0.0,
    access_loss_db=ACCESS_DB,
    access_loss_sigma_db=0.0,
    coupler_common_sigma=0.0,
    coupler_difference_rad=0.0,
    random_passive_phases=False,
    heater_ohm=OHM,
    heater_ohm_sigma=0.0,
    thermal_nonlinearity_per_mw=0.0,
    thermal_tau_s=TAU_S,
    crosstalk=False,
    eta_slope_per_nm=0.0,
    differential_slope_per_nm=0.0,
    monitor_scale_sigma=0.0,
    monitor_noise_relative=0.0,
    monitor_noise_floor_dbm=-200.0,
    wavelength_sigma_nm=0.0,
    tm_rejection_db=200.0,
    fibre_drift_rad2_per_s=0.0,
)


def source(port: int, *, name: str = "", polarization: str | None = None, gain_db: float = 0.0) -> InputPath:
    """Return an input at a port, with 0.5 dB of fixed loss."""
    return InputPath(name or f"m{port}", port, polarization, 0.5, gain_db)


def detector(port: int, *, name: str = "rx", tap_fraction: float = 0.1) -> OutputPath:
    """Return an output at a port, with 0.3 dB of fixed loss and a tap to channel 1 of a meter."""
    return OutputPath(port, name, 0.3, "meter", 1, tap_fraction)


def world_of(
    inputs: Sequence[InputPath],
    outputs: Sequence[OutputPath] = (),
    physics: PhysicsParameters = PLAIN,
    *,
    seed: int = 0,
    mesh: HexMesh = MESH,
    aligned: bool = True,
) -> tuple[OpticalWorld, VirtualClock]:
    """Return a world and its clock.

    All heaters have the same Pπ. With ``aligned``, all light arrives in TE while no squeezer is driven.
    """
    rng, clock, wiring = np.random.default_rng(seed), VirtualClock(), Wiring(tuple(inputs), tuple(outputs))
    truth = draw_mesh(mesh, physics, rng)
    truth.p_pi_mw[:] = P_PI_MW
    chains = draw_chains(wiring, 1550.0, physics, rng)
    if aligned:
        for chain in chains:
            chain.launch = np.array([1.0, 0.0], dtype=np.complex128)
            chain.fibre_in = chain.fibre_out = np.eye(2, dtype=np.complex128)
            chain.squeezer_offset_rad = np.zeros(4)
    return OpticalWorld(mesh, wiring, truth, chains, physics, 1550.0, clock, rng), clock


def currents(*heated: tuple[int, float]) -> np.ndarray:
    """Return a table of heater currents: the given (heater, mA) pairs, 0 for the rest."""
    table = np.zeros(2 * MESH.n_pucs)
    for heater, current_ma in heated:
        table[heater] = current_ma
    return table


def loss(db: float) -> float:
    """Return the transmission of a loss."""
    return float(10.0 ** (-db / 10.0))


IDEAL_SQUEEZERS = SqueezerProfile(hysteresis_rad=0.0, settle_tau_s=1e-9, activation_loss_db=0.0)


def squeezing(world: OpticalWorld, controller: str = "pol") -> Callable[[int, float], None]:
    """Return a function (channel, drive in mV) that squeezes the first input's fibre, each time from rest."""
    chain, seconds = world.chains[0], itertools.count()
    squeezers = Squeezers(
        chain.squeezer_period_mv, chain.squeezer_offset_rad, lambda: float(next(seconds)), IDEAL_SQUEEZERS
    )

    def squeeze(channel: int, drive_mv: float) -> None:
        squeezers.drive(channel, drive_mv)
        world.set_polarization(controller, squeezers.jones())

    return squeeze
