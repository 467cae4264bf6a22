"""The module state machine: low power, ready, fault, reset."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import ALL_LANES
from lumion_hw.errors import LinkError
from lumion_hw.sessions.module.adapter import PinnedAdapter
from lumion_hw.standards.cmis import codes

RESET_PULSE_S = 1e-3
"""How long ResetL is held low: 10 us are enough (QSFP-DD hardware specification, t_reset_init)."""
RESET_S = 5.0
"""Time until a module answers again after a reset."""


def power_up(module: ModuleContext, pins: PinnedAdapter | None = None) -> None:
    """Let the module leave low power: clear both requests, and wait until it is ready.

    Its transmitters are disabled first: after a reset nothing else keeps a module from lighting up by itself as soon as
    it is powered (CMIS: TxDisable is 0 after a reset).

    Raises:
        DeviceTimeoutError: It is not ready within 1.5 times the advertised time.
        DeviceError: It went into its fault state.
    """
    memory = module.memory
    module.needs(not module.advertised.flat, "a power mode")
    with memory.pages.transaction():
        module.guard()
        if module.state() != codes.ModuleState.READY and module.advertised.supported("tx_disable"):
            memory.set_lanes("tx_disable", ALL_LANES, True)
        # Both requests, one by one: only these two bits of byte 26 are ours, the others hold
        # squelch method and broadcast. Some hosts write a constant over the byte and lose them.
        memory.write("low_pwr_allow_request_hw", False)
        memory.write("low_pwr_request_sw", False)
        _drive(pins, "lp_mode", False)
    _await_state(module, codes.ModuleState.READY, "power_up")


def power_down(module: ModuleContext, pins: PinnedAdapter | None = None) -> None:
    """Ask for low power in the way that the module's quirks name, and wait until it is there.

    Raises:
        DeviceTimeoutError: It is not in low power within 1.5 times the advertised times.
        DeviceError: It went into its fault state.
    """
    memory = module.memory
    module.needs(not module.advertised.flat, "a power mode")
    by_pin = module.quirks.power_request == "pin"
    with memory.pages.transaction():
        module.guard()
        module.state()
        memory.write("low_pwr_allow_request_hw" if by_pin else "low_pwr_request_sw", True)
        # The bit first, so that the pin finds itself allowed to ask.
        if by_pin:
            _drive(pins, "lp_mode", True)
    _await_state(module, codes.ModuleState.LOW_PWR, "power_down")


def reset(module: ModuleContext, pins: PinnedAdapter | None = None) -> None:
    """Reset the module, by ResetL if it is wired, and wait until it answers; everything it was told is forgotten."""
    memory = module.memory
    with memory.pages.transaction():
        if not _drive(pins, "reset_l", True):
            module.guard()
            byte = memory.pages.read_page(None, 26, 1)[0]
            # Not read back: the bit clears itself with the reset, during which the module answers nothing.
            memory.pages.write_page(None, 26, bytes([byte | 0x08]))
        else:
            try:
                module.clock.sleep(RESET_PULSE_S)
            finally:
                _drive(pins, "reset_l", False)
        memory.pages.forget()

    def answers() -> bool:
        try:
            return memory.number("module_state") != 0
        except LinkError:
            memory.pages.forget()
            return False

    module.wait(answers, RESET_S, lambda: "no answer after the reset")


def _drive(pins: PinnedAdapter | None, signal: str, asserted: bool) -> bool:
    """Assert or release a signal where it is wired; return whether it is."""
    if pins is None or signal not in pins.wired:
        return False
    pins.assert_signal(signal, asserted)
    return True


def _await_state(module: ModuleContext, wanted: codes.ModuleState, stage: str) -> None:
    def words() -> str:
        return f"{stage}: module state {codes.describe('module_state', module.memory.number('module_state'))}{why()}"

    def why() -> str:
        if wanted is codes.ModuleState.LOW_PWR and module.quirks.power_request == "pin":
            return " (the low-power pin is not asserted)"
        return ""

    timeout_s = module.longest_s(stage)
    if wanted is codes.ModuleState.LOW_PWR:
        # Going down the module first takes its data paths down by itself.
        timeout_s += module.longest_s("dp_deinit") + module.longest_s("tx_turn_off")
    module.wait(lambda: module.state() == wanted, timeout_s, words)
