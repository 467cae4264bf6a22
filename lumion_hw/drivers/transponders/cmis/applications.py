"""Choosing an application: staged set, apply, and the module's answer lane by lane."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.errors import ConfigError, ConfigRejectedError, DeviceTimeoutError
from lumion_hw.interfaces import Application
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.codes import ConfigStatus

APPLY_S = 10.0
"""Time for the module to accept or refuse a configuration (facts, transponders 5)."""
_PENDING = frozenset({ConfigStatus.UNDEFINED, ConfigStatus.SUCCESS, ConfigStatus.IN_PROGRESS})


def select_application(module: ModuleContext, number: int, first_lane: int, *, check: bool = True) -> None:
    """Run an application on the host lanes from ``first_lane`` on; the transmitter is off afterwards.

    Args:
        module: The module.
        number: AppSel code.
        first_lane: First host lane.
        check: Refuse what the module does not advertise; otherwise let the module refuse it.

    Raises:
        ConfigError: The module does not offer it there.
        ConfigRejectedError: The module refused it.
        DeviceTimeoutError: It neither accepted nor refused it in time.
    """
    application = _offered(module, number, first_lane, check)
    lanes = tuple(range(first_lane, first_lane + application.host_lanes))
    module.guard()
    module.need_ready()
    dp.await_steady(module)
    concerned = [path for path in dp.data_paths(module) if set(path.host_lanes) & set(lanes)]
    wanted = dp.DataPath(number, lanes, dp.media_lanes_of(application, first_lane))
    dp.deactivate(module, [*concerned, wanted])
    others = [path for path in concerned if path.host_lanes != lanes]
    if others and module.quirks.decommission:
        _decommission(module, dp.host_lanes(others))
    _apply(module, lanes, number << 4 | (first_lane - 1) << 1)


def _offered(module: ModuleContext, number: int, first_lane: int, check: bool) -> Application:
    offered = {item.number: item for item in module.advertised.applications}
    if number in offered and first_lane in offered[number].first_host_lanes:
        return offered[number]
    if not check:
        like = offered.get(number) or Application(number, "", "", 1, 1, (), (), 0, 0)
        if like.host_lanes + first_lane - 1 <= len(dp.ALL_LANES) and 0 <= number <= 15:
            return like
    choice = "; ".join(
        f"{item.number} ({item.host_interface} to {item.media_interface}) from lane "
        f"{', '.join(map(str, item.first_host_lanes))}"
        for item in offered.values()
    )
    raise module.error(
        ConfigError, f"no application {number} from host lane {first_lane}", f"The module offers {choice or 'none'}."
    )


def _decommission(module: ModuleContext, lanes: Collection[int]) -> None:
    """Put lanes out of use. Some modules refuse that; it only means that they do it by themselves."""
    try:
        _apply(module, lanes, 0)
    except (ConfigRejectedError, DeviceTimeoutError) as error:
        module.warnings.append(f"lanes were not put out of use first: {error.message}")


def _apply(module: ModuleContext, lanes: Collection[int], staged: int) -> None:
    """Stage one byte per lane, apply it, and wait for the module's answer."""
    memory = module.memory
    ordered = sorted(lanes)
    with memory.pages.transaction():
        for first, count in _runs(ordered):
            data = bytes([staged] * count)
            memory.write_bytes("staged_0_app_sel", first, data)
        memory.trigger("staged_0_apply_dp_init", ordered)
    started = module.clock.now()
    seen_in_progress = False
    last: dict[int, int] = {}

    def answered() -> bool:
        nonlocal seen_in_progress
        with memory.pages.transaction():
            last.update(zip(dp.ALL_LANES, memory.numbers("config_status"), strict=True))
            active = dict(zip(dp.ALL_LANES, memory.numbers("active_app_sel"), strict=True))
        found = [last[lane] for lane in ordered]
        if ConfigStatus.IN_PROGRESS in found:
            seen_in_progress = True
            return False
        # Without having been seen at work, the module may still show its answer to an older question.
        fresh = seen_in_progress or module.clock.now() - started >= module.quirks.settle_after_apply_s
        refused = [lane for lane in ordered if last[lane] not in _PENDING]
        if refused and fresh:
            raise _rejected(module, refused[0], last[refused[0]], staged)
        return not refused and all(
            last[lane] == ConfigStatus.SUCCESS and active[lane] == staged >> 4 for lane in ordered
        )

    module.wait(answered, APPLY_S, lambda: _words(ordered, last))


def _words(lanes: Collection[int], last: dict[int, int]) -> str:
    lane = next((lane for lane in lanes if last[lane] != ConfigStatus.SUCCESS), min(lanes))
    return f"config_in_progress: host lane {lane} shows {codes.describe('config_status', last[lane])}"


def _rejected(module: ModuleContext, lane: int, code: int, staged: int) -> ConfigRejectedError:
    return ConfigRejectedError(
        f"application {staged >> 4} was refused",
        lane=lane,
        code=code,
        name=codes.describe("config_status", code),
        device=module.memory.device,
        address=module.memory.address,
        hint="The configuration in force did not change; see the applications the module offers.",
    )


def _runs(lanes: Collection[int]) -> list[tuple[int, int]]:
    """Return ascending lanes as pairs of first lane and number of lanes."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and runs[-1][0] + runs[-1][1] == lane:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs
