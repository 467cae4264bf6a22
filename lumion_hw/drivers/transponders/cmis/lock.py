"""Finds out whether a link is up, or why not, in the order of docs/transponders.md, "Why is there no link?"."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lumion_hw.clock import deadline_after
from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.drivers.transponders.cmis.diagnostics import Vdm
from lumion_hw.drivers.transponders.cmis.memory import FlagKey
from lumion_hw.drivers.transponders.cmis.monitors import LANE_STATUS_PAGE, lane_readings
from lumion_hw.drivers.transponders.cmis.performance import FEC_PAGE, bit_error_ratios, read_counters
from lumion_hw.drivers.transponders.cmis.scope import Scope
from lumion_hw.drivers.transponders.cmis.tuning import REFUSALS, TOLERANCE_MHZ, configured_mhz
from lumion_hw.errors import LinkError, NotSupportedError
from lumion_hw.interfaces import LockReport, LockStage, Quality
from lumion_hw.quantities import dbm_from_w
from lumion_hw.sessions.module.registers import ModuleAbsentError
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.codes import ConfigStatus, DataPathState, ModuleState
from lumion_hw.standards.cmis.coherent_pages import FEC_COUNTERS

POLL_S = 0.2
"""Time in s between two checks of the link."""
STALE_AFTER_S = 5.0
"""Time in s without change after which a bit counter counts as stopped."""
FINAL = frozenset(
    {LockStage.ABSENT, LockStage.FAULT, LockStage.CONFIG_REJECTED, LockStage.TUNING_REJECTED, LockStage.LOCKED}
)
"""Stages at which waiting has no effect: the link is up, or cannot come up."""
_COHERENT_FLAGS = 0x33
_LOL_CAUSES = ("coherent_rx_lof", "coherent_rx_lom", "coherent_rx_demodulator_lol", "coherent_rx_cd_compensation_lol")
_NOT_REJECTED = frozenset({ConfigStatus.UNDEFINED, ConfigStatus.SUCCESS, ConfigStatus.IN_PROGRESS})


@dataclass
class _PathState:
    """State of a data path at the last check.

    Attributes:
        init_since_s: Start of the initialisation.
        bits: Bit counter.
        counted_s: Time of the last change of the bit counter.
    """

    init_since_s: float | None = None
    bits: int | None = None
    counted_s: float = 0.0


class LockWatch:
    """Checks the links of data paths repeatedly and records the duration of each stage.

    Args:
        scope: Data paths to check; the link is up when all of them are up.
    """

    def __init__(self, module: ModuleContext, vdm: Vdm, scope: Scope) -> None:
        self._module = module
        self._vdm = vdm
        self._scope = scope
        self._path_states: dict[int, _PathState] = {}

    def wait(self, timeout_s: float) -> LockReport:
        """Check until the link is up, cannot come up, or the time is over; return the last report."""
        clock = self._module.clock
        deadline = deadline_after(clock, timeout_s)
        started = last = clock.now()
        durations: dict[LockStage, float] = {}
        while True:
            report = self.check()
            now_s = clock.now()
            durations[report.stage] = durations.get(report.stage, 0.0) + now_s - last
            last = now_s
            if report.stage in FINAL or now_s >= deadline:
                return dataclasses.replace(report, elapsed_s=now_s - started, stages=tuple(durations.items()))
            clock.sleep(min(POLL_S, deadline - now_s))
            durations[report.stage] += clock.now() - last
            last = clock.now()

    def check(self) -> LockReport:
        """Return a report with the reason why the link is not up. Access errors are reported too."""
        try:
            return next(self._reasons())
        except ModuleAbsentError as error:
            return LockReport(LockStage.ABSENT, error.message)
        except LinkError as error:
            return LockReport(LockStage.NOT_RESPONDING, error.message)

    def _reasons(self) -> Iterator[LockReport]:
        yield from self._module_reasons()
        paths = self._scope.paths(self._module)
        if not paths:
            detail = f"no application is selected{self._scope.suffix()}"
            yield LockReport(LockStage.DP_INIT, detail, lane=self._scope.first_lane or self._scope.media_lane)
            return
        # Latched flags may be old; only a flag that is set again immediately after reading is present now.
        flags = self._module.flags.live(LANE_STATUS_PAGE)
        for path in paths:
            yield from self._path_reasons(path, flags)
        yield LockReport(LockStage.LOCKED, "the link is up")

    def _path_reasons(self, path: DataPath, flags: frozenset[FlagKey]) -> Iterator[LockReport]:
        yield from self._data_path_reasons(path, flags)
        yield from self._tuning_reasons(path)
        valid = dict(zip(self._module.memory.lanes, self._module.memory.values("tx_output_valid"), strict=True))
        for lane in path.media_lanes:
            if not valid[lane]:  # the laser is not the reason
                yield self._dark(lane, "tx_output_valid")
        yield from self._receiver_reasons(path, flags)

    def _module_reasons(self) -> Iterator[LockReport]:
        memory = self._module.memory
        state = memory.number("module_state")
        if self._module.advertised.flat:
            raise self._module.error(NotSupportedError, "a cable has no link state", "Check the link at its other end.")
        if state == ModuleState.FAULT:
            cause = memory.number("fault_cause")
            name = codes.describe("fault_cause", cause)
            yield LockReport(LockStage.FAULT, f"the module is in its fault state: {name}", code=cause, code_name=name)
        elif state == ModuleState.PWR_UP:
            yield _module(LockStage.POWERING_UP, "the module is powering up", state)
        elif state == ModuleState.PWR_DN:
            yield _module(LockStage.LOW_POWER, "the module is powering down", state)
        elif state != ModuleState.READY:
            source = "sw" if memory.value("low_pwr_request_sw") else "pin"
            yield _module(LockStage.LOW_POWER, f"low power is requested ({source})", state, source)

    def _data_path_reasons(self, path: DataPath, flags: frozenset[FlagKey]) -> Iterator[LockReport]:
        module = self._module
        states = dp.states(module)
        active = all(states[lane] == DataPathState.ACTIVATED for lane in path.host_lanes)
        statuses = dict(zip(module.memory.lanes, module.memory.numbers("config_status"), strict=True))
        for lane in () if active else path.host_lanes:
            # Only for inactive paths, because an old refusal remains readable while an active path continues.
            if statuses[lane] not in _NOT_REJECTED:
                yield self._code(LockStage.CONFIG_REJECTED, "config_status", statuses[lane], lane)
            if statuses[lane] == ConfigStatus.IN_PROGRESS:
                yield self._code(LockStage.CONFIG_IN_PROGRESS, "config_status", statuses[lane], lane)
        if not active:
            if all(states[lane] == DataPathState.DEACTIVATED for lane in path.host_lanes):
                yield from self._tuning_reasons(path)  # the path is deactivated for tuning
            yield from self._state_reasons(path, states)
        self._state_of(path).init_since_s = None
        for lane in path.media_lanes:
            if ("tx_failure", lane) in flags:
                yield self._dark(lane, "tx_failure")

    def _state_of(self, path: DataPath) -> _PathState:
        return self._path_states.setdefault(path.first_lane, _PathState())

    def _state_reasons(self, path: DataPath, states: dict[int, int]) -> Iterator[LockReport]:
        module = self._module
        deinit = dp.requested_deinit(module)
        disabled = dict(zip(module.memory.lanes, module.memory.values("tx_disable"), strict=True))
        # A single disabled lane prevents activation of the path (CMIS 5.2 clause 6.3.3, DPDeactivateS).
        dark = any(disabled[lane] for lane in path.media_lanes)
        for lane in path.host_lanes:
            state = states[lane]
            if state in (DataPathState.DEACTIVATED, DataPathState.DEINIT) or (
                state in (DataPathState.INIT, DataPathState.TX_TURN_OFF) and deinit[lane - 1]
            ):
                reason = "DPDeinit is set" if deinit[lane - 1] else "initialisation has not started"
                yield self._code(LockStage.DP_INIT, "data_path_state", state, lane, f" ({reason})")
            if state == DataPathState.INIT:
                yield self._initialising(path, lane, state)
            if state in (DataPathState.INITIALIZED, DataPathState.TX_TURN_ON, DataPathState.TX_TURN_OFF):
                self._state_of(path).init_since_s = None
                reason = "Tx disable is set" if dark else "the transmitter is being switched"
                yield self._code(LockStage.TX_DISABLED, "data_path_state", state, lane, f" ({reason})")
            if state != DataPathState.ACTIVATED:
                yield self._code(LockStage.DP_INIT, "data_path_state", state, lane, " (reserved state)")

    def _initialising(self, path: DataPath, lane: int, state: int) -> LockReport:
        now_s, memory = self._module.clock.now(), self._state_of(path)
        if memory.init_since_s is None:
            memory.init_since_s = now_s
        elapsed_s = now_s - memory.init_since_s
        bound_s = self._module.advertised.durations_s["dp_init"]
        values = {"elapsed_s": elapsed_s} | ({} if bound_s is None else {"bound_s": bound_s})
        limit = "" if bound_s is None else f", advertised {bound_s:g} s"
        report = self._code(LockStage.DP_INIT, "data_path_state", state, lane, f" (for {elapsed_s:.1f} s{limit})")
        return dataclasses.replace(report, values=values)

    def _tuning_reasons(self, path: DataPath) -> Iterator[LockReport]:
        if self._module.advertised.tunable:
            self._module.flags.read(0x12)
            for lane in path.media_lanes:
                yield from self._laser_reasons(lane)

    def _laser_reasons(self, lane: int) -> Iterator[LockReport]:
        module = self._module
        memory = module.memory
        if memory.value("tuning_in_progress", lane):
            yield LockReport(LockStage.TUNING, f"media lane {lane} is tuning", lane=lane, flag="tuning_in_progress")
        configured, actual = configured_mhz(module, lane), memory.number("current_frequency", lane)
        if configured is None or abs(configured - actual) > TOLERANCE_MHZ:
            flag = next((name for name in REFUSALS if module.flags.has_flag_history(name, lane)), "")
            values = {"current_mhz": float(actual)} | (
                {} if configured is None else {"configured_mhz": float(configured)}
            )
            detail = f"media lane {lane} is at {actual} MHz, configured {configured} MHz"
            yield LockReport(LockStage.TUNING_REJECTED, detail, lane=lane, flag=flag, values=values)
        if memory.value("wavelength_unlocked", lane):
            flag = "wavelength_unlocked"
            yield LockReport(
                LockStage.WAVELENGTH_UNLOCKED, f"the laser of media lane {lane} is not locked", lane=lane, flag=flag
            )

    def _receiver_reasons(self, path: DataPath, flags: frozenset[FlagKey]) -> Iterator[LockReport]:
        lanes, signal = path.media_lanes, self._module.advertised.signal
        for lane in lanes:
            if ("rx_los", lane) in flags:
                yield LockReport(LockStage.RX_LOS, f"no {signal} at media lane {lane}", lane=lane, flag="rx_los")
        unlocked = [lane for lane in lanes if ("rx_lol", lane) in flags]
        ber = self._ber_reason(path)
        if unlocked or ber:
            yield from self._power_reasons(lanes)
        if unlocked:
            cause = self._lol_cause()
            received = "light without a valid signal" if signal == "light" else "no valid signal"
            detail = f"media lane {unlocked[0]} receives {received}" + (f" ({cause})" if cause else "")
            yield LockReport(LockStage.RX_LOL, detail, lane=unlocked[0], flag=cause or "rx_lol")
        if ber:
            yield ber

    def _power_reasons(self, lanes: Collection[int]) -> Iterator[LockReport]:
        module = self._module
        if not module.advertised.supported("rx_power"):
            return
        low, high = (
            _dbm(module.advertised.value(f"rx_power_{limit}_threshold")) for limit in ("low_alarm", "high_alarm")
        )
        for lane in lanes:
            power = lane_readings(module, lane)["rx_power"]
            if power.value is None:
                continue
            for limit, stage, outside in (
                (low, LockStage.RX_POWER_LOW, low is not None and power.value < low),
                (high, LockStage.RX_POWER_HIGH, high is not None and power.value > high),
            ):
                if outside and limit is not None:
                    values = {"rx_power_dbm": power.value, "limit_dbm": limit}
                    detail = f"media lane {lane} receives {power.value:.2f} dBm, limit {limit:.2f} dBm"
                    yield LockReport(stage, detail, lane=lane, values=values)

    def _lol_cause(self) -> str:
        module = self._module
        if not (module.advertised.coherent and module.memory.pages.has_page(_COHERENT_FLAGS)):
            return ""
        live = {name for name, _ in module.flags.live(_COHERENT_FLAGS)}
        return next((name for name in _LOL_CAUSES if name in live), "")

    def _ber_reason(self, path: DataPath) -> LockReport | None:
        module = self._module
        if not module.advertised.coherent or not path.media_lanes:
            return None
        lane = path.media_lanes[0]
        ratio, quality = self._ber(path, lane)
        if ratio is None or quality is Quality.STALE:
            return LockReport(LockStage.BER_STALE, "bit errors are not counted", lane=lane)
        offered = {item.number: item.media_id for item in module.advertised.applications}
        limit = module.advertised.ber_limit(offered.get(path.application, 0))
        if limit is not None and ratio >= limit:
            values = {"prefec_ber": ratio, "limit": limit}
            detail = f"pre-FEC BER {ratio:.2e}, limit {limit:.2e}"
            return LockReport(LockStage.BER_HIGH, detail, lane=lane, values=values)
        return None

    def _ber(self, path: DataPath, lane: int) -> tuple[float | None, Quality]:
        current = self._vdm.current("ber_current_media", lane)
        first, last = FEC_COUNTERS[0][1], FEC_COUNTERS[-1][1] + FEC_COUNTERS[-1][2]
        if current is not None:
            return (current, Quality.OK) if 0.0 < current < 0.5 else (None, Quality.STALE)
        counters = read_counters(self._module.memory.pages.read_page(FEC_PAGE, first, last - first))
        now_s, memory = self._module.clock.now(), self._state_of(path)
        # Without a VDM sample: if the counter does not change, the ratio belongs to an earlier signal.
        if counters["bits"] != memory.bits:
            memory.bits, memory.counted_s = counters["bits"], now_s
        ratios = bit_error_ratios(counters)
        if ratios is None or now_s - memory.counted_s > STALE_AFTER_S:
            return None, Quality.STALE
        return ratios[0], Quality.OK

    def _dark(self, lane: int, flag: str) -> LockReport:
        detail = f"media lane {lane} emits no valid {self._module.advertised.signal}"
        return LockReport(LockStage.TX_FAILURE, detail, lane=lane, flag=flag)

    def _code(self, stage: LockStage, table: str, code: int, lane: int, more: str = "") -> LockReport:
        name = codes.describe(table, code)
        return LockReport(stage, f"host lane {lane}: {name}{more}", lane=lane, code=code, code_name=name)


def _module(stage: LockStage, detail: str, state: int, flag: str = "") -> LockReport:
    return LockReport(stage, detail, code=state, code_name=codes.describe("module_state", state), flag=flag)


def _dbm(threshold_mw: object) -> float | None:
    if not isinstance(threshold_mw, (int, float)) or threshold_mw <= 0:
        return None
    return dbm_from_w(threshold_mw * 1e-3)
