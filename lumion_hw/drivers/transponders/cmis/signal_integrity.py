"""Signal integrity of the host lanes: equalizers, output levels and clock recovery.

A host sets them in staged control set 0 (CMIS 5.2, 10h:153-173) with ExplicitControl (10h:145-152, bit 0), applies the
set to whole data paths, and reads the active set back (11h:206-234). Without ExplicitControl the module uses the
defaults of the application, and the active set shows them (SONiC, CMIS-custom-SI-settings).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis.codes import DataPathState


@dataclass(frozen=True)
class SignalIntegrity:
    """Settings of a host lane. ``None`` keeps the present value; read back, the module does not have the setting.

    Attributes:
        tx_adaptive_eq: Whether the input equalizer of the transmitter adapts itself.
        tx_fixed_eq: Code of the input equalizer without adaptation (1 dB per step), at most 01h:153.3-0.
        tx_cdr: Whether clock recovery of the transmitter is on.
        rx_cdr: Whether clock recovery of the receiver is on.
        rx_pre_cursor: Code of the output pre-cursor (0.5 dB per step), at most 01h:154.3-0.
        rx_post_cursor: Code of the output post-cursor (1 dB per step), at most 01h:154.7-4.
        rx_amplitude: Code of the output amplitude, 0 to 3; 01h:153.7-4 lists the offered codes.
    """

    tx_adaptive_eq: bool | None = None
    tx_fixed_eq: int | None = None
    tx_cdr: bool | None = None
    rx_cdr: bool | None = None
    rx_pre_cursor: int | None = None
    rx_post_cursor: int | None = None
    rx_amplitude: int | None = None

    def named(self) -> dict[str, int | bool]:
        """Return the settings that are not ``None``, by name."""
        named = {item.name: getattr(self, item.name) for item in fields(SignalIntegrity)}
        return {name: value for name, value in named.items() if value is not None}

    def values(self) -> dict[str, int]:
        """Return the settings that are not ``None``, by name; booleans as 0 and 1."""
        return {name: int(value) for name, value in self.named().items()}


@dataclass(frozen=True)
class ActiveSignalIntegrity(SignalIntegrity):
    """Settings that a host lane uses.

    Attributes:
        is_custom: Whether the host has set them (ExplicitControl); otherwise they are those of the application.
    """

    is_custom: bool = False


_NAMES = tuple(item.name for item in fields(SignalIntegrity))
_SWITCHES = frozenset({"tx_adaptive_eq", "tx_cdr", "rx_cdr"})
_MAXIMA = {
    "tx_fixed_eq": "tx_input_eq_max",
    "rx_pre_cursor": "rx_pre_cursor_max",
    "rx_post_cursor": "rx_post_cursor_max",
}
_N_AMPLITUDES = 4
_NO_RECALL = 0
_LIVE = frozenset({DataPathState.INITIALIZED, DataPathState.ACTIVATED})


def label(name: str) -> str:
    """Return the name of a setting for messages, such as ``Rx pre-cursor``."""
    side, _, rest = name.partition("_")
    texts = {"adaptive_eq": "adaptive equalization", "fixed_eq": "equalization", "cdr": "clock recovery"}
    return f"{side.capitalize()} {texts.get(rest, rest.replace('_', '-'))}"


def check(module: ModuleContext, settings: SignalIntegrity) -> None:
    """Compare settings with what the module advertises.

    Raises:
        NotSupportedError: The module does not have a setting.
        LimitError: A code is above the advertised maximum, or the amplitude is not offered.
        ConfigError: There is nothing to set, or a fixed equalization together with the adaptive one.
    """
    values = settings.values()
    if not values:
        raise module.error(ConfigError, "there is no signal-integrity setting", "Give at least one value.")
    for name, value in values.items():
        module.needs(_is_offered(module, name), f"setting {label(name)}")
        highest = module.advertised.number(_MAXIMA[name]) if name in _MAXIMA else value
        if not 0 <= value <= highest:
            raise module.error_limit(label(name), value, 0 if value < 0 else highest, "")
    if settings.rx_amplitude is not None:
        _check_amplitude(module, settings.rx_amplitude)
    if settings.tx_adaptive_eq and settings.tx_fixed_eq is not None:
        raise _no_effect(module)


def _check_amplitude(module: ModuleContext, code: int) -> None:
    levels = module.advertised.number("rx_output_levels")
    offered = [item for item in range(_N_AMPLITUDES) if levels >> item & 1]
    if code not in offered:
        nearest = min(offered, key=lambda item: abs(item - code), default=0)
        names = ", ".join(map(str, offered)) or "none"
        raise module.error_limit(f"Rx amplitude (the module offers {names})", code, nearest, "")


def _is_offered(module: ModuleContext, name: str) -> bool:
    return not module.advertised.flat and module.advertised.supported(f"active_{name}") is True


def _no_effect(module: ModuleContext) -> ConfigError:
    return module.error(
        ConfigError,
        "Tx equalization has no effect while adaptive equalization is on",
        "Switch adaptive equalization off in the same call.",
    )


def read(module: ModuleContext, lanes: Collection[int]) -> dict[int, ActiveSignalIntegrity]:
    """Read the settings in use of host lanes. Raises ``NotSupportedError`` for modules with flat memory."""
    module.needs(not module.advertised.flat, "signal integrity")
    memory = module.memory
    with memory.pages.transaction():
        columns = {name: memory.numbers(f"active_{name}") for name in _NAMES if _is_offered(module, name)}
        custom = memory.values("active_explicit_control")
    return {lane: _lane_settings(lane, columns, is_custom=bool(custom[lane - 1])) for lane in lanes}


def _lane_settings(lane: int, columns: Mapping[str, tuple[int, ...]], *, is_custom: bool) -> ActiveSignalIntegrity:
    values: dict[str, Any] = {
        name: bool(column[lane - 1]) if name in _SWITCHES else column[lane - 1] for name, column in columns.items()
    }
    return ActiveSignalIntegrity(**values, is_custom=is_custom)


def write(module: ModuleContext, settings: SignalIntegrity | None, lanes: Collection[int]) -> None:
    """Set host lanes, or return them to the defaults of their applications, and compare the active set.

    Other lanes of the same data paths keep their settings. An active data path stays active (ApplyImmediate), unless
    the module cannot be reconfigured while active (00h:2.6); then the data path is dark meanwhile.

    Args:
        module: Open module.
        settings: Settings; ``None`` for the defaults of the application.
        lanes: Host lanes.

    Raises:
        NotSupportedError: The module does not have a setting.
        LimitError: A value is outside the advertised range.
        ConfigError: A lane is in no data path, or adaptive equalization makes a setting ineffective.
        ConfigRejectedError: The module refused the settings; the code is in the message.
        VerifyError: The module accepted the settings and uses others.
        DeviceTimeoutError: A step took too long.
    """
    if settings is not None:
        check(module, settings)
    module.guard()
    module.need_ready()
    paths = check_lanes(module, lanes)
    every_lane = dp.host_lanes(paths)
    dp.await_steady(module, every_lane)
    wanted = _merged(module, settings, lanes, read(module, every_lane))
    before = dp.states(module)
    live = [path for path in paths if before[path.first_lane] in _LIVE]
    idle = [path for path in paths if path not in live]
    if idle:
        _apply(module, idle, wanted, immediate=False)
    if live and not module.advertised.number("stepped_config_only"):
        _apply(module, live, wanted, immediate=True)
    elif live:
        _apply_in_steps(module, live, wanted, before)


def check_lanes(module: ModuleContext, lanes: Collection[int]) -> list[DataPath]:
    """Return the data paths of host lanes. Raises ``ConfigError`` if a lane is in no data path."""
    in_use = dp.data_paths(module)
    unused = sorted(set(lanes) - set(dp.host_lanes(in_use)))
    if unused or not lanes:
        named = f"host lane {', '.join(map(str, unused))} is" if unused else "no host lane is"
        raise module.error(ConfigError, f"{named} in a data path", "Select an application for these lanes first.")
    return [path for path in in_use if set(path.host_lanes) & set(lanes)]


def _merged(
    module: ModuleContext,
    settings: SignalIntegrity | None,
    lanes: Collection[int],
    active: Mapping[int, ActiveSignalIntegrity],
) -> dict[int, ActiveSignalIntegrity]:
    if settings is None:
        return {lane: replace(item, is_custom=item.is_custom and lane not in lanes) for lane, item in active.items()}
    changes: dict[str, Any] = {
        name: bool(value) if name in _SWITCHES else value for name, value in settings.values().items()
    }
    wanted = {
        lane: replace(item, is_custom=True, **changes) if lane in lanes else item for lane, item in active.items()
    }
    if settings.tx_fixed_eq is not None and any(wanted[lane].tx_adaptive_eq for lane in lanes):
        raise _no_effect(module)
    return wanted


def _apply_in_steps(
    module: ModuleContext,
    paths: Collection[DataPath],
    wanted: Mapping[int, ActiveSignalIntegrity],
    before: Mapping[int, int],
) -> None:
    others = [path for path in dp.data_paths(module) if path not in paths]
    emitting = [path for path in paths if before[path.first_lane] == DataPathState.ACTIVATED]
    dp.deactivate(module, paths, keep=dp.emitting_lanes(module, others))
    try:
        _apply(module, paths, wanted, immediate=False)
    finally:
        # Also after a refusal: the data paths continue with the settings that they had.
        dp.initialise(module, paths)
        if emitting:
            dp.switch_on(module, emitting)


def _apply(
    module: ModuleContext,
    paths: Collection[DataPath],
    wanted: Mapping[int, ActiveSignalIntegrity],
    *,
    immediate: bool,
) -> None:
    lanes = dp.host_lanes(paths)
    custom = [lane for lane in lanes if wanted[lane].is_custom]
    elements = [(f"staged_0_{name}", lane, value) for lane in custom for name, value in wanted[lane].values().items()]
    if module.advertised.supported("staged_0_tx_eq_recall"):
        elements += [("staged_0_tx_eq_recall", lane, _NO_RECALL) for lane in custom]
    module.memory.write_elements(elements)
    staged = {lane: dp.staged_byte(path, explicit=wanted[lane].is_custom) for path in paths for lane in path.host_lanes}
    dp.apply(module, staged, "the signal-integrity settings were refused", immediate=immediate)
    active = read(module, lanes)
    wrong = [
        lane
        for lane in lanes
        if active[lane].is_custom != wanted[lane].is_custom or (wanted[lane].is_custom and active[lane] != wanted[lane])
    ]
    if wrong:
        lane = wrong[0]
        raise module.error_verify(
            f"signal integrity of host lane {lane}",
            _text(wanted[lane]),
            _text(active[lane]),
            "The module accepted the settings and uses others.",
        )


def _text(item: ActiveSignalIntegrity) -> str:
    values = ", ".join(f"{label(name)} {value}" for name, value in item.values().items())
    return f"{'custom' if item.is_custom else 'default'}: {values}"
