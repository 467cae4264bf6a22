"""Data paths (the lanes of one application): their states, and the selection of applications."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.errors import ConfigError, ConfigRejectedError, DeviceError, DeviceTimeoutError
from lumion_hw.interfaces import Application
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.codes import DATA_PATH_TRANSIENT, ConfigStatus, DataPathState, ModuleState
from lumion_hw.standards.cmis.fields import LANES

ALL_LANES = tuple(range(1, 9))
"""Lane numbers of one bank."""
_TX_EXTRA_S = 1.0  # in addition to the advertised time, which is milliseconds for most modules
_TRANSIENT_STAGES = {
    int(DataPathState.INIT): "dp_init",
    int(DataPathState.DEINIT): "dp_deinit",
    int(DataPathState.TX_TURN_ON): "tx_turn_on",
    int(DataPathState.TX_TURN_OFF): "tx_turn_off",
}
_EMITTING_STATES = frozenset({DataPathState.ACTIVATED, DataPathState.TX_TURN_ON, DataPathState.TX_TURN_OFF})
MAY_EMIT = _EMITTING_STATES | {DataPathState.INITIALIZED}
"""Data path states in which a media lane may emit light unless it is disabled (CMIS 5.2 clause 6.3.3)."""
_INITIALISED = frozenset({DataPathState.INITIALIZED, DataPathState.ACTIVATED, DataPathState.TX_TURN_ON})


@dataclass(frozen=True)
class DataPath:
    """The lanes that belong to one application.

    Attributes:
        application: Number of the application in the module's list (AppSel code).
        host_lanes: Host lanes, from 1.
        media_lanes: Media lanes, from 1.
    """

    application: int
    host_lanes: tuple[int, ...]
    media_lanes: tuple[int, ...]

    @property
    def first_lane(self) -> int:
        """First host lane, which identifies the path (DataPathID + 1)."""
        return self.host_lanes[0]


def media_lanes_of(application: Application, first_host_lane: int) -> tuple[int, ...]:
    """Return the media lanes of an application that begins on a host lane.

    If an application has fewer possible first media lanes than first host lanes, the remaining host lanes share the
    last one.
    """
    before = (first_host_lane - 1) // LANES * LANES
    bank = range(before + 1, before + LANES + 1)
    starts = [lane for lane in application.first_host_lanes if lane in bank]
    media = [lane for lane in application.first_media_lanes if lane in bank]
    position = starts.index(first_host_lane) if first_host_lane in starts else 0
    first = media[min(position, len(media) - 1)] if media else bank.start + position * application.media_lanes
    return tuple(lane for lane in range(first, first + application.media_lanes) if lane in bank)


def data_paths(module: ModuleContext) -> tuple[DataPath, ...]:
    """Read the data paths in use."""
    with module.memory.pages.transaction():
        selected = module.memory.numbers("active_app_sel")
        identities = module.memory.numbers("active_data_path_id")
    applications = {application.number: application for application in module.advertised.applications}
    groups: dict[tuple[int, int], list[int]] = {}
    for lane, (number, identity_in_bank) in enumerate(zip(selected, identities, strict=True), start=1):
        identity = identity_in_bank + (lane - 1) // LANES * LANES
        # 0 means that the lane is in no data path.
        if number:
            groups.setdefault((number, identity), []).append(lane)
    return tuple(
        DataPath(
            number, tuple(lanes), media_lanes_of(applications[number], identity + 1) if number in applications else (1,)
        )
        for (number, identity), lanes in groups.items()
    )


def host_lanes(paths: Iterable[DataPath]) -> tuple[int, ...]:
    """Return the host lanes of several data paths, ascending."""
    return tuple(sorted({lane for path in paths for lane in path.host_lanes}))


def media_lanes(module: ModuleContext, paths: Iterable[DataPath]) -> tuple[int, ...]:
    """Return all media lanes of data paths; all of the module with the quirk ``tx_disable_all``."""
    if module.quirks.tx_disable_all:
        return module.memory.lanes
    return tuple(sorted({lane for path in paths for lane in path.media_lanes}))


def states(module: ModuleContext) -> dict[int, int]:
    """Read the data path state of every host lane."""
    return dict(zip(module.memory.lanes, module.memory.numbers("data_path_state"), strict=True))


def emitting_lanes(module: ModuleContext, paths: Iterable[DataPath]) -> dict[int, DataPath]:
    """Return the media lanes that may emit light now, each with a data path that uses the lane."""
    present_states = states(module)
    return {lane: path for path in paths if present_states[path.first_lane] in MAY_EMIT for lane in path.media_lanes}


def lanes_on(module: ModuleContext, paths: Collection[DataPath]) -> frozenset[int]:
    """Return the media lanes that are switched on."""
    emitting = emitting_lanes(module, paths)
    if emitting and module.advertised.supported("tx_disable"):
        disabled = dict(zip(module.memory.lanes, module.memory.values("tx_disable"), strict=True))
        return frozenset(lane for lane in emitting if not disabled[lane])
    return frozenset(emitting)


def await_steady(module: ModuleContext, lanes: Collection[int]) -> None:
    """Wait until no data path on these host lanes is changing its state."""
    # A path may be at the start of any transition and continue with the others.
    timeout_s = sum(module.longest_s(stage) for stage in ("dp_init", "dp_deinit", "tx_turn_on", "tx_turn_off"))
    _await(module, lanes, frozenset(range(16)) - DATA_PATH_TRANSIENT, timeout_s, "")


def set_deinit(module: ModuleContext, lanes: Iterable[int], on: bool) -> None:
    """Set or clear the request to de-initialise host lanes."""
    module.memory.set_lanes("data_path_deinit", lanes, on is not module.quirks.inverted_deinit)


def requested_deinit(module: ModuleContext) -> tuple[bool, ...]:
    """Read which host lanes have a request to de-initialise."""
    return tuple(bool(bit) is not module.quirks.inverted_deinit for bit in module.memory.values("data_path_deinit"))


def deactivate(module: ModuleContext, paths: Collection[DataPath], keep: Collection[int] = ()) -> None:
    """Switch the transmitters off, de-initialise the host lanes and wait for their deactivation.

    Args:
        module: Open module.
        paths: Data paths to deactivate.
        keep: Media lanes of other data paths, which stay on.
    """
    lanes = host_lanes(paths)
    if module.advertised.supported("tx_disable"):
        # Otherwise a path that is initialised again would emit light automatically (CMIS: DPInitialized continues to
        # DPTxTurnOn).
        module.memory.set_lanes("tx_disable", set(media_lanes(module, paths)) - set(keep), True)
    set_deinit(module, lanes, True)
    timeout_s = module.longest_s("tx_turn_off") + _TX_EXTRA_S + module.longest_s("dp_deinit")
    _await(module, lanes, frozenset({DataPathState.DEACTIVATED}), timeout_s, "dp_deinit")


def initialise(module: ModuleContext, paths: Collection[DataPath]) -> None:
    """Initialise host lanes and wait until their data paths are initialised."""
    lanes = host_lanes(paths)
    set_deinit(module, lanes, False)
    _await(module, lanes, _INITIALISED, module.longest_s("dp_init"), "dp_init")


def switch_on(module: ModuleContext, paths: Collection[DataPath]) -> None:
    """Switch on the transmitters of initialised data paths and wait until all data paths are active."""
    if module.advertised.supported("tx_disable"):
        module.memory.set_lanes("tx_disable", media_lanes(module, paths), False)
    timeout_s = module.longest_s("tx_turn_on") + _TX_EXTRA_S
    _await(module, host_lanes(paths), frozenset({DataPathState.ACTIVATED}), timeout_s, "tx_turn_on")


def switch_off(module: ModuleContext, paths: Collection[DataPath], lanes: Iterable[int] = ()) -> None:
    """Switch the transmitters off and wait until no data path is active; the paths stay initialised.

    Args:
        module: Open module.
        paths: Data paths to switch off.
        lanes: Additional media lanes to switch off.
    """
    if not module.advertised.supported("tx_disable"):
        deactivate(module, paths)
        return
    module.memory.set_lanes("tx_disable", {*media_lanes(module, paths), *lanes}, True)
    timeout_s = module.longest_s("tx_turn_off") + _TX_EXTRA_S
    _await(module, host_lanes(paths), frozenset(range(16)) - _EMITTING_STATES, timeout_s, "tx_turn_off")


def _await(
    module: ModuleContext, lanes: Collection[int], targets: Collection[int], timeout_s: float, stage: str
) -> None:
    last: dict[int, int] = {}

    def all_reached() -> bool:
        """Return whether all lanes are in a target state. Raises ``DeviceError`` if the module is not ready."""
        state = module.state()
        # Outside ModuleReady, states of data paths are meaningless, and waiting would end in a timeout.
        if state != ModuleState.READY:
            raise module.error(
                DeviceError,
                f"{stage or 'data paths'}: the module changed to state {codes.describe('module_state', state)}",
                "The module was reset or set to low power. Call power_up() and start again.",
            )
        last.update(states(module))
        return all(last[lane] in targets for lane in lanes)

    def describe() -> str:
        lane = next(lane for lane in lanes if last[lane] not in targets)
        state = codes.describe("data_path_state", last[lane])
        return f"{stage or _TRANSIENT_STAGES[last[lane]]}: host lane {lane} remains in state {state}"

    module.wait(all_reached, timeout_s, describe)


APPLY_S = 10.0
"""Time for the module to accept or refuse a configuration, in s (docs/transponders.md, "Times")."""
_PENDING = frozenset({ConfigStatus.UNDEFINED, ConfigStatus.SUCCESS, ConfigStatus.IN_PROGRESS})


def select_application(module: ModuleContext, number: int, first_lane: int, *, check: bool = True) -> None:
    """Run an application on host lanes from ``first_lane`` on; the transmitter is off afterwards.

    Raises the errors of :meth:`CoherentTransponder.select_application`, and ``DeviceTimeoutError`` without a response.

    Args:
        module: Open module.
        number: Number of the application (AppSel code).
        first_lane: First host lane.
        check: Whether to refuse applications that the module does not advertise.
    """
    application = offered(module, number, first_lane, check=check)
    lanes = tuple(range(first_lane, first_lane + application.host_lanes))
    module.guard()
    module.need_ready()
    in_use = data_paths(module)
    affected = [path for path in in_use if set(path.host_lanes) & set(lanes)]
    await_steady(module, {*lanes, *host_lanes(affected)})
    new_path = DataPath(number, lanes, media_lanes_of(application, first_lane))
    unaffected = [path for path in in_use if path not in affected]
    deactivate(module, [*affected, new_path], keep=emitting_lanes(module, unaffected))
    other_paths = [path for path in affected if path.host_lanes != lanes]
    if other_paths and module.quirks.decommission:
        _decommission(module, host_lanes(other_paths))
    staged = staged_byte(new_path, explicit=False)
    apply(module, dict.fromkeys(lanes, staged), f"application {number} was refused")


def offered(module: ModuleContext, number: int, first_lane: int, *, check: bool = True) -> Application:
    """Return an application. Raises ``ConfigError`` if the module does not offer it from this host lane.

    With ``check`` off, an application that is not offered has one host lane.
    """
    by_number = {item.number: item for item in module.advertised.applications}
    if number in by_number and first_lane in by_number[number].first_host_lanes:
        return by_number[number]
    if not check:
        like = by_number.get(number) or Application(number, "", "", 1, 1, (), (), 0, 0)
        if like.host_lanes + (first_lane - 1) % LANES <= LANES and 0 <= number <= 15:
            return like
    choice = "; ".join(
        f"{item.number} ({item.host_interface} to {item.media_interface}) from lane "
        f"{', '.join(map(str, item.first_host_lanes))}"
        for item in by_number.values()
    )
    raise module.error(
        ConfigError,
        f"the module does not offer application {number} from host lane {first_lane}",
        f"The module offers: {choice or 'no application'}.",
    )


def _decommission(module: ModuleContext, lanes: Collection[int]) -> None:
    try:
        apply(module, dict.fromkeys(lanes, 0), "application 0 was refused")
    except (ConfigRejectedError, DeviceTimeoutError) as error:
        module.warnings.append(f"lanes could not be set to application 0 first: {error.message}")


def staged_byte(path: DataPath, *, explicit: bool) -> int:
    """Return the byte that assigns a host lane to a data path in a staged control set (10h:145-152).

    ``explicit``: whether the lane uses the signal-integrity settings of the staged control set.
    """
    return path.application << 4 | (path.first_lane - 1) % LANES << 1 | explicit


def apply(module: ModuleContext, staged: Mapping[int, int], refusal: str, *, immediate: bool = False) -> None:
    """Write the bytes of staged control set 0, apply them and wait for the result.

    Args:
        module: Open module.
        staged: Byte of each host lane to apply; see :func:`staged_byte`.
        refusal: Message if the module refuses.
        immediate: Whether active data paths stay active (ApplyImmediate).

    Raises:
        ConfigRejectedError: The module refused; the active configuration did not change.
        DeviceTimeoutError: The module did not respond.
    """
    memory = module.memory
    ordered = sorted(staged)
    with memory.pages.transaction():
        for first, count in _runs(ordered):
            data = bytes(staged[lane] for lane in range(first, first + count))
            memory.write_bytes("staged_0_app_sel", first, data)
        memory.trigger("staged_0_apply_immediate" if immediate else "staged_0_apply_dp_init", ordered)
    started = module.clock.now()
    was_in_progress = False
    last: dict[int, int] = {}

    def is_accepted() -> bool:
        """Return whether the module has accepted all settings. Raises an error if it has refused a lane."""
        nonlocal was_in_progress
        with memory.pages.transaction():
            # The status tells that a configuration was accepted, and the active set tells which one.
            last.update(zip(memory.lanes, memory.numbers("config_status"), strict=True))
            selected = memory.numbers("active_app_sel")
            explicit = memory.numbers("active_explicit_control")
        active = dict(zip(memory.lanes, zip(selected, explicit, strict=True), strict=True))
        statuses = [last[lane] for lane in ordered]
        if ConfigStatus.IN_PROGRESS in statuses:
            was_in_progress = True
            return False
        # Until it was in progress, the module may still show the result of an earlier request.
        is_new = was_in_progress or module.clock.now() - started >= module.quirks.settle_after_apply_s
        refused = [lane for lane in ordered if last[lane] not in _PENDING]
        if refused and is_new:
            raise _rejected(module, refused[0], last[refused[0]], refusal)
        # Other settings of the active set may differ from those before while the application is the same.
        is_shown = is_new or not any(byte & 1 for byte in staged.values())
        return (
            is_shown
            and not refused
            and all(
                last[lane] == ConfigStatus.SUCCESS and active[lane] == (byte >> 4, byte & 1)
                for lane, byte in staged.items()
            )
        )

    module.wait(is_accepted, APPLY_S, lambda: _status_text(ordered, last))


def _status_text(lanes: Collection[int], last: dict[int, int]) -> str:
    lane = next((lane for lane in lanes if last[lane] != ConfigStatus.SUCCESS), min(lanes))
    return f"config_in_progress: host lane {lane} shows {codes.describe('config_status', last[lane])}"


def _rejected(module: ModuleContext, lane: int, code: int, message: str) -> ConfigRejectedError:
    return module.memory.error(
        ConfigRejectedError,
        message,
        lane=lane,
        code=code,
        name=codes.describe("config_status", code),
        hint="The active configuration did not change. See the applications of the module.",
    )


def _runs(lanes: Collection[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        # One write can contain eight bytes, so adjacent lanes of a bank need only one transaction.
        if runs and runs[-1][0] + runs[-1][1] == lane and (lane - 1) % LANES:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs
