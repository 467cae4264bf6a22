"""Staged and active control sets: apply triggers, validation, provisioning (CMIS 6.2.3)."""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.data_paths import DataPaths, lanes_of
from lumion_hw.standards.cmis import FIELDS
from lumion_hw.standards.cmis.codes import ConfigStatus, DataPathState, ModuleState
from lumion_hw.standards.cmis.fields import LANES

_STEADY_IN_USE = frozenset({DataPathState.INITIALIZED, DataPathState.ACTIVATED})
_SETTINGS = tuple(
    name.removeprefix("active_")
    for name in FIELDS
    if name.startswith("active_") and name not in ("active_app_sel", "active_data_path_id")
)
"""Fields of a control set that hold signal-integrity settings, and the bit that says to use them."""
_MAXIMA = (
    ("tx_fixed_eq", "tx_input_eq_max"),
    ("rx_pre_cursor", "rx_pre_cursor_max"),
    ("rx_post_cursor", "rx_post_cursor_max"),
)


@dataclass(frozen=True)
class Staged:
    """What one host lane asks for: application, data path, and the raw signal-integrity values by name."""

    app_sel: int
    data_path_id: int
    settings: dict[str, int]

    @property
    def explicit(self) -> bool:
        """Whether the signal-integrity values are to be used."""
        return bool(self.settings["explicit_control"])


class ControlSets:
    """Takes apply triggers and answers with ConfigStatus.

    Args:
        core: The module.
        paths: The data paths, which provisioning forms anew.
    """

    def __init__(self, core: Core, paths: DataPaths) -> None:
        self._core, self._paths = core, paths

    def _status(self, mask: int, status: ConfigStatus) -> None:
        for lane in lanes_of(mask):
            self._core.memory.put("config_status", status, lane)

    def trigger(self, number: int, mask: int, *, immediate: bool = False) -> None:
        """Apply staged set ``number`` on the host lanes of ``mask``; lanes still at work ignore it."""
        core = self._core
        if immediate and core.quirks.stepped_config_only:
            return
        for lane in lanes_of(mask):
            if core.memory.count("config_status", lane) == ConfigStatus.IN_PROGRESS:
                mask &= ~(1 << (lane - 1))
        if not mask:
            return
        self._status(mask, ConfigStatus.IN_PROGRESS)
        if not core.has("stuck_config"):
            staged = {lane: self._staged(number, lane) for lane in range(1, LANES + 1)}
            core.agenda.after(core.timing.apply_s, lambda: self._finish(mask, staged, immediate))

    def _staged(self, number: int, lane: int) -> Staged:
        memory, prefix = self._core.memory, f"staged_{number}"
        settings = {name: memory.count(f"{prefix}_{name}", lane) for name in _SETTINGS}
        app_sel, path_id = memory.count(f"{prefix}_app_sel", lane), memory.count(f"{prefix}_data_path_id", lane)
        return Staged(app_sel, path_id, settings)

    def _finish(self, mask: int, staged: dict[int, Staged], immediate: bool) -> None:
        """Judge the lanes in groups that stand or fall together, then provision those that are good.

        Lanes of a data path that is replaced depend on each other: what one group loses may cost another.
        """
        verdicts = dict.fromkeys(self._groups(mask, staged), ConfigStatus.SUCCESS)
        good, passed = 0, mask
        while passed != good:
            good = passed
            for group in [group for group, status in verdicts.items() if status is ConfigStatus.SUCCESS]:
                verdicts[group] = self._judge(group, good, staged, immediate)
            passed = sum(group for group, status in verdicts.items() if status is ConfigStatus.SUCCESS)
        for group, status in verdicts.items():
            self._status(group, status)
            if status is ConfigStatus.SUCCESS:
                self._copy(group, staged)
        if good:
            self._paths.form(good, pending=not immediate)

    @staticmethod
    def _groups(mask: int, staged: dict[int, Staged]) -> list[int]:
        """Return the lanes of ``mask`` by the data path they ask for; all unused ones together."""
        groups: dict[tuple[int, int], int] = {}
        for lane in lanes_of(mask):
            identity = _identity(staged[lane])
            groups[identity] = groups.get(identity, 0) | 1 << (lane - 1)
        return list(groups.values())

    def _judge(self, group: int, applied: int, staged: dict[int, Staged], immediate: bool) -> ConfigStatus:
        """Return the ConfigStatus of a group, checked in this order: 3, 4, 7, 6, 5.

        Args:
            group: Lanes asking for one data path, or for none.
            applied: All lanes of the trigger that are not known to be bad.
            staged: What each lane asks for.
            immediate: By ApplyImmediate.
        """
        first = staged[next(lanes_of(group))]
        if self._core.memory.count("module_state") == ModuleState.FAULT:
            return ConfigStatus.REJECTED
        if first.app_sel == 0:
            return self._judge_unused(group, applied)
        application = self._core.profile.application(first.app_sel)
        if application is None:
            return ConfigStatus.REJECTED_INVALID_APPSEL
        start = first.data_path_id
        whole = ((1 << application.host_lanes) - 1) << start
        misplaced = not application.host_options >> start & 1 or whole > 0xFF or bool(group & ~whole)
        checks = (
            (misplaced, ConfigStatus.REJECTED_INVALID_DATA_PATH),
            (group != whole, ConfigStatus.REJECTED_PARTIAL_DATA_PATH),
            (self._in_use(whole, applied, first.app_sel, immediate), ConfigStatus.REJECTED_LANES_IN_USE),
            (not all(self._legal(staged[lane]) for lane in lanes_of(group)), ConfigStatus.REJECTED_INVALID_SI),
        )
        return next((status for failed, status in checks if failed), ConfigStatus.SUCCESS)

    def _judge_unused(self, group: int, applied: int) -> ConfigStatus:
        """Judge AppSel 0: legal for whole data paths that are deactivated."""
        paths = self._paths.overlapping(group)
        if self._core.has("reject_appsel0"):
            return ConfigStatus.REJECTED
        if any(path.host_mask & ~applied for path in paths):
            return ConfigStatus.REJECTED_PARTIAL_DATA_PATH
        if any(path.state is not DataPathState.DEACTIVATED for path in paths):
            return ConfigStatus.REJECTED_LANES_IN_USE
        return ConfigStatus.SUCCESS

    def _in_use(self, whole: int, applied: int, app_sel: int, immediate: bool) -> bool:
        """Tell whether the lanes are in use in a way that forbids the change.

        A deactivated data path can be replaced if all its lanes are applied; one at work can only be commissioned
        again with the same lanes, and by ApplyImmediate also with the same application.
        """
        for path in self._paths.overlapping(whole):
            if path.host_mask & ~applied:
                return True
            if path.state is DataPathState.DEACTIVATED:
                continue
            if self._core.quirks.stepped_config_only or path.host_mask != whole or path.state not in _STEADY_IN_USE:
                return True
            if immediate and path.app_sel != app_sel:
                return True
        return False

    def _legal(self, staged: Staged) -> bool:
        """Tell whether explicit signal-integrity values are within what page 01h advertises."""
        memory = self._core.memory
        if not staged.explicit:
            return True
        if any(staged.settings[name] > memory.count(limit) for name, limit in _MAXIMA):
            return False
        levels, amplitude = memory.count("rx_output_levels"), staged.settings["rx_amplitude"]
        return amplitude < 4 and bool(levels >> amplitude & 1)

    def _copy(self, group: int, staged: dict[int, Staged]) -> None:
        """Make the staged settings of these lanes the active ones; without explicit control the application's own."""
        memory = self._core.memory
        for lane in lanes_of(group):
            wanted = staged[lane]
            memory.put("active_app_sel", wanted.app_sel, lane)
            memory.put("active_data_path_id", wanted.data_path_id if wanted.app_sel else 0, lane)
            for name, count in wanted.settings.items():
                memory.put(f"active_{name}", count if wanted.explicit else 0, lane)


def _identity(staged: Staged) -> tuple[int, int]:
    """Return what lanes of one data path have in common; all unused lanes go together."""
    return (staged.app_sel, staged.data_path_id) if staged.app_sel else (0, 0)
