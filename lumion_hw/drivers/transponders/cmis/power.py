"""Power states of a module: low power, ready, fault, reset."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.errors import LinkError
from lumion_hw.sessions.module.adapter import PinnedAdapter
from lumion_hw.standards.cmis import codes

RESET_PULSE_S = 1e-3
"""Length of the ResetL pulse, in s; the minimum is 10 µs (QSFP-DD hardware specification, t_reset_init)."""
RESET_S = 5.0
"""Time until a module responds after a reset, in s."""


def power_up(module: ModuleContext, pins: PinnedAdapter | None = None) -> None:
    """Leave low power and wait until the module is ready. The transmitters stay dark.

    Raises:
        DeviceTimeoutError: The module is not ready within 1.5 times the advertised time.
        DeviceError: The module entered its fault state.
    """
    memory = module.memory
    module.needs(not module.advertised.flat, "a power mode")
    with memory.pages.transaction():
        module.guard()
        if module.state() != codes.ModuleState.READY and module.advertised.supported("tx_disable"):
            memory.set_lanes("tx_disable", memory.lanes, True)
        # Written bit by bit, because other bits of byte 26 contain squelch method and broadcast.
        memory.write("low_pwr_allow_request_hw", False)
        memory.write("low_pwr_request_sw", False)
        _drive(pins, "lp_mode", False)
    _await_state(module, codes.ModuleState.READY, "power_up")


def power_down(module: ModuleContext, pins: PinnedAdapter | None = None) -> None:
    """Request low power and wait for it. Raises the errors of :func:`power_up`."""
    memory = module.memory
    module.needs(not module.advertised.flat, "a power mode")
    by_pin = module.quirks.power_request == "pin"
    with memory.pages.transaction():
        module.guard()
        module.state()
        memory.write("low_pwr_allow_request_hw" if by_pin else "low_pwr_request_sw", True)
        # The bit first, because it enables the pin.
        if by_pin:
            _drive(pins, "lp_mode", True)
    _await_state(module, codes.ModuleState.LOW_PWR, "power_down")


def reset(module: ModuleContext, pins: PinnedAdapter | None = None) -> None:
    """Reset the module, by ResetL if wired, and wait until it responds. All settings are lost.

    Raises:
        NotSupportedError: The memory is flat, and ResetL is not wired.
    """
    memory = module.memory
    with memory.pages.transaction():
        if not _drive(pins, "reset_l", True):
            module.needs(not module.advertised.flat, "a reset by software")
            module.guard()
            byte = memory.pages.read_page(None, 26, 1)[0]
            # Not read back, because the bit clears itself with the reset.
            memory.pages.write_page(None, 26, bytes([byte | 0x08]))
        else:
            try:
                module.clock.sleep(RESET_PULSE_S)
            finally:
                _drive(pins, "reset_l", False)
        memory.pages.forget()

    def is_responding() -> bool:
        try:
            return memory.number("module_state") != 0
        except LinkError:
            memory.pages.forget()
            return False

    module.wait(is_responding, RESET_S, lambda: "no answer after the reset")


def _drive(pins: PinnedAdapter | None, signal: str, asserted: bool) -> bool:
    if pins is None or signal not in pins.wired:
        return False
    pins.assert_signal(signal, asserted)
    return True


def _await_state(module: ModuleContext, target: codes.ModuleState, stage: str) -> None:
    def describe() -> str:
        return f"{stage}: module state {codes.describe('module_state', module.memory.number('module_state'))}{note()}"

    def note() -> str:
        if target is codes.ModuleState.LOW_PWR and module.quirks.power_request == "pin":
            return " (the low-power pin is not asserted)"
        return ""

    timeout_s = module.longest_s(stage)
    if target is codes.ModuleState.LOW_PWR:
        # The module first deactivates its data paths.
        timeout_s += module.longest_s("dp_deinit") + module.longest_s("tx_turn_off")
    module.wait(lambda: module.state() == target, timeout_s, describe)
