"""Frequency and output power of the laser."""

from __future__ import annotations

import math

from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.errors import DeviceError, LimitError, VerifyError
from lumion_hw.interfaces import TuningResult
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.codes import DataPathState, Grid
from lumion_hw.standards.cmis.grids import GRIDS, Tuning, reported_mhz
from lumion_hw.standards.cmis.lane_pages import TUNING_FLAGS

TUNING_S = 180.0
"""Maximum time in s for a channel change, from a 400ZR data sheet."""
TOLERANCE_MHZ = 1
"""Largest accepted difference of a frequency, in MHz; modules report whole MHz."""
_TUNING_PAGE = 0x12
REFUSALS = ("invalid_channel", "tuning_not_accepted", "fine_tuning_oor")
"""Flags that indicate a refused tuning."""
_POWER_CHECK_S = 0.2  # time between two checks for a refusal, which only a flag indicates


def tune(module: ModuleContext, frequency_thz: float, grid_ghz: float | None, lane: int) -> TuningResult:
    """Tune the laser of a media lane. An active data path is dark meanwhile.

    Raises:
        NotSupportedError: The laser cannot be tuned.
        LimitError: The frequency is not available; the message names the nearest ones. Nothing was changed.
        DeviceError: The module refused the frequency, and the data path is inactive; flags give the reason.
        DeviceTimeoutError: The laser did not settle.
    """
    plan = plan_tuning(module, frequency_thz, grid_ghz)
    module.guard()
    module.need_ready()
    paths = [path for path in dp.data_paths(module) if lane in path.media_lanes]
    dp.await_steady(module, dp.host_lanes(paths))
    before = dp.states(module)
    emitting_paths = [path for path in paths if before[path.host_lanes[0]] == DataPathState.ACTIVATED]
    initialised = [path for path in paths if before[path.host_lanes[0]] != DataPathState.DEACTIVATED]
    is_deactivated = bool(initialised) and not module.quirks.tunes_while_active
    # While the path is active, modules may refuse a channel change or need minutes for it.
    if is_deactivated:
        dp.deactivate(module, initialised)
    actual_mhz = _write_and_wait(module, plan, lane)
    if is_deactivated:
        dp.initialise(module, initialised)
    if is_deactivated and emitting_paths:
        dp.switch_on(module, emitting_paths)
    return TuningResult(codes.describe("grid", plan.grid), plan.channel, plan.fine_mhz / 1e3, actual_mhz / 1e6)


def plan_tuning(module: ModuleContext, frequency_thz: float, grid_ghz: float | None) -> Tuning:
    """Return grid, channel and fine offset for a frequency, rounded to MHz. Raises the errors of :func:`tune`."""
    module.needs(module.advertised.tunable, "tuning")
    if not math.isfinite(frequency_thz):
        max_mhz = [reported_mhz(grid, high) for grid, (_, high) in module.advertised.grids.channels.items()]
        raise module.error_limit("frequency", frequency_thz, max(max_mhz, default=0) / 1e6, "THz")
    try:
        return module.advertised.grids.select(round(frequency_thz * 1e6), _grid(module, grid_ghz))
    except LimitError as error:
        error.device, error.address = module.memory.device, module.memory.address
        raise


def _grid(module: ModuleContext, grid_ghz: float | None) -> Grid | None:
    if grid_ghz is None:
        return None
    spacings = {grid: float(GRIDS[grid].spacing_mhz) / 1e3 for grid in module.advertised.grids.channels}
    # A tolerance of 0.05 GHz, so that 33.3 selects the grid with a third of 100 GHz.
    matching = [grid for grid, spacing in spacings.items() if abs(spacing - grid_ghz) < 0.05]
    if not matching:
        nearest = min(spacings.values(), key=lambda spacing: abs(spacing - grid_ghz), default=0.0)
        raise module.error_limit(f"no {grid_ghz:g} GHz grid", grid_ghz, nearest, "GHz")
    return matching[0]


def _write_and_wait(module: ModuleContext, plan: Tuning, lane: int) -> int:
    memory, flags = module.memory, module.flags
    fine = module.advertised.grids.fine is not None
    with memory.pages.transaction():
        # The grid must be set before the channel number.
        memory.write("grid", plan.grid, lane)
        if fine:
            memory.write("fine_tuning_enable", plan.fine_mhz != 0, lane)
        flags.read(_TUNING_PAGE)  # the old channel may be invalid on the new grid; this is not a refusal
        flags.clear(TUNING_FLAGS)
        memory.write("channel", plan.channel, lane)
        if fine:
            memory.write("fine_tuning_offset", plan.fine_mhz, lane)
    last: dict[str, int] = {}

    def is_settled() -> bool:
        """Return whether the laser is locked at the planned frequency. Raises ``DeviceError`` after a refusal."""
        module.state()
        with memory.pages.transaction():
            raised = flags.read(_TUNING_PAGE)
            last["mhz"] = memory.number("current_frequency", lane)
            busy = memory.value("tuning_in_progress", lane) or memory.value("wavelength_unlocked", lane)
        # Checked before the frequency, which may already match after a refusal.
        refused = [name for name in REFUSALS if (name, lane) in raised]
        if refused:
            raise module.error(
                DeviceError,
                f"tuning to {plan.frequency_mhz} MHz (media lane {lane}) was refused: {', '.join(refused)}; the "
                f"laser stays at {last['mhz']} MHz",
                "Deactivate the data path first, or use a frequency in the range of the module.",
            )
        return not busy and abs(last["mhz"] - plan.frequency_mhz) <= TOLERANCE_MHZ

    def describe() -> str:
        status = [name for name in ("tuning_in_progress", "wavelength_unlocked") if memory.value(name, lane)]
        state = ", ".join(status) or "settled"
        return f"tuning: media lane {lane} is {state} at {last['mhz']} MHz, not at {plan.frequency_mhz} MHz,"

    module.wait(is_settled, TUNING_S * module.quirks.time_factor, describe)
    return last["mhz"]


def configured_mhz(module: ModuleContext, lane: int) -> int | None:
    """Return the configured frequency, or ``None`` if no valid grid is configured."""
    memory = module.memory
    with memory.pages.transaction():
        code = memory.number("grid", lane)
        channel = memory.number("channel", lane)
        fine = memory.number("fine_tuning_offset", lane) if memory.value("fine_tuning_enable", lane) else 0
    return reported_mhz(Grid(code), channel, fine) if code in tuple(Grid) else None


def check_power(module: ModuleContext, power_dbm: float) -> None:
    """Raise ``NotSupportedError`` or ``LimitError`` if the module cannot be set to this output power."""
    limits = module.advertised.tx_power_limits_dbm
    module.needs(limits is not None, "setting the output power")
    low, high = limits or (0.0, 0.0)
    if not low <= power_dbm <= high:
        limit = low if power_dbm < low else high
        raise module.error_limit("output power", power_dbm, limit, "dBm")


def set_power(module: ModuleContext, power_dbm: float, lane: int) -> None:
    """Set the output power of a media lane. Raises the errors of ``CoherentTransponder.set_tx_power_dbm``."""
    check_power(module, power_dbm)
    module.guard()
    with module.memory.pages.transaction():
        module.flags.read(_TUNING_PAGE)
        module.memory.write("target_output_power", power_dbm, lane)
    end = module.clock.now() + _POWER_CHECK_S
    while True:
        if ("target_output_power_oor", lane) in module.flags.read(_TUNING_PAGE):
            raise module.memory.error(
                VerifyError,
                f"the output power of media lane {lane} was refused",
                wrote=f"{power_dbm:g} dBm",
                read="TargetOutputPowerOOR",
                hint="The power did not change.",
            )
        if module.clock.now() >= end:
            return
        module.clock.sleep(_POWER_CHECK_S)
