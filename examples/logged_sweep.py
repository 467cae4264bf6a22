"""A function that logs the power of a meter at every trigger of a laser sweep (docs/instruments.md)."""

from lumion_hw.drivers import TriggerInput
from lumion_hw.interfaces import LaserSweep


def transmission(laser, meter):
    """Return wavelengths in nm and powers in W of one sweep, one power per trigger."""
    plan = LaserSweep(start_nm=1530.0, stop_nm=1560.0, step_nm=0.01, speed_nm_per_s=50.0, log=True)
    n_triggers = round((plan.stop_nm - plan.start_nm) / plan.step_nm) + 1
    run = meter.functions.start_log((1,), n_triggers, averaging_s=1e-4, trigger=TriggerInput.ONE_SAMPLE)
    wavelength_nm = laser.sweep(plan).wavelength_nm
    return wavelength_nm, run.wait(timeout_s=5.0).power_w[0]
