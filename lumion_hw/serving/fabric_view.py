"""Conversion of the fabric's state (servers, jobs, spares) to served values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.fabric import FabricState, units
from lumion_hw.fabric.decisions import free_spares
from lumion_hw.fabric.standby import loop_requests
from lumion_hw.serving.state import ServedFabric, ServedFabricJob, ServedUnit, UnitCondition


def served_fabric(
    model: BenchModel,
    state: FabricState,
    circuits: Collection[str],
    cold: Mapping[str, str],
    *,
    is_maintained: bool,
) -> ServedFabric | None:
    """Return servers, jobs and spares as served values; ``None`` if the bench file has no servers.

    Args:
        model: The bench file.
        state: Replaced members of jobs, failed units and refused jobs.
        circuits: Names of the active circuits; a spare is warm if its modules send to their own receivers.
        cold: Reasons why spares are cold, by name.
        is_maintained: Whether a fabric manager runs.
    """
    if not model.servers:
        return None
    jobs = model.fabric.all_jobs
    serving = {state.unit_at(member): (job.name, member) for job in jobs for member in job.members}
    spares = free_spares(model, state)
    served_units = []
    for name, unit in units(model).items():
        job, member = serving.get(name, ("", ""))
        is_warm = all(request.name in circuits for request in loop_requests(unit))
        condition: UnitCondition
        if name in state.failed:
            condition = "failed"
        elif job:
            condition = "in service" if is_maintained else "job member"
        elif name in spares:
            condition = ("warm spare" if is_warm else "cold spare") if is_maintained else "spare"
        else:
            condition = "unused"
        reason = state.failed.get(name) or (cold.get(name, "") if condition == "cold spare" else "")
        # An accelerator without a part in any job only repeats the line of its server.
        if condition != "unused" or name == unit.server:
            replaces = "" if member == name else member
            served_units.append(ServedUnit(name, condition, reason, job, replaces, unit.nics))
    served_jobs = (
        ServedFabricJob(job.name, tuple(map(state.unit_at, job.members)), state.refused.get(job.name, ""))
        for job in jobs
    )
    return ServedFabric(tuple(served_units), tuple(served_jobs), is_maintained)
