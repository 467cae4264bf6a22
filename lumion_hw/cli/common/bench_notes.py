"""Warnings about a bench file that is valid but hinders a calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lumion_hw.cli.common.output import note
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.bench.file.model import BenchModel

_MAX_UNSEEN = 4
"""Largest number of PUCs without light that are listed one by one."""


def bench_notes(model: BenchModel) -> list[str]:
    """Return warnings about heaters and sources that a calibration cannot use fully."""
    return [*_heater_notes(model), *_multiplexed_sources(model)]


def print_bench_notes(model: BenchModel) -> None:
    """Print these warnings before a calibration or its plan."""
    for warning in bench_notes(model):
        note(f"lumion-calibrate: {warning}")


def unseen_pucs(model: BenchModel) -> dict[int, str]:
    """Return the PUCs whose light reaches no monitor or meter, each with a sentence without a full stop."""
    from calibration.diagnose.element_faults import describe_unseen_puc
    from calibration.model.illuminated_part import illuminated_part

    if model.mesh is None:
        return {}
    topology, wiring = model.topology(), model.to_wiring()
    sources = tuple(path.port for path in wiring.inputs)
    monitors = model.monitors() or tuple(path.port for path in wiring.outputs if path.meter)
    if not sources or not monitors:
        return {}
    unseen = (~illuminated_part(topology, sources, monitors).pucs).nonzero()[0].tolist()
    return {puc: describe_unseen_puc(topology, puc, sources, monitors) for puc in unseen}


def wired_ports(model: BenchModel) -> set[int] | None:
    """Return the mesh ports with a fibre, a meter or a photodiode; ``None`` for a bench without wiring."""
    wiring = model.wiring
    ports = {path.port for path in wiring.inputs} | {path.port for path in wiring.outputs}
    ports |= {mirror.port for mirror in wiring.reflectors} | {port for loop in wiring.loops for port in loop.ports}
    return ports | set(model.monitors()) if ports else None


def unseen_notes(unseen: Mapping[int, str], picture: str) -> list[str]:
    """Return warnings about PUCs whose light reaches no monitor or meter; the last one counts all if they are many.

    Args:
        unseen: Result of :func:`unseen_pucs`.
        picture: What marks all of them, such as a command.
    """
    texts = [f"{text}." for text in unseen.values()]
    if len(texts) <= _MAX_UNSEEN:
        return texts
    return [*texts[:_MAX_UNSEEN], f"{len(texts)} PUCs in all are not measured; {picture} marks them."]


def _heater_notes(model: BenchModel) -> list[str]:
    """Return warnings about heater limits that are too small for a phase shift of 2π or for a calibration."""
    from lumion_hw.bench.file.devices import HeaterDriverModel
    from lumion_hw.bench.file.heater_checks import heat_note, reach_note

    if model.mesh is None or not isinstance(model.devices[model.mesh.controller], HeaterDriverModel):
        return []
    from calibration.run.dry_run import expected_heat_mw

    try:
        needed_mw = expected_heat_mw(model)
    except ConfigError:  # without inputs or monitors there is no calibration
        needed_mw = 0.0
    return [text for text in (reach_note(model), heat_note(model, needed_mw)) if text]


def _multiplexed_sources(model: BenchModel) -> Iterator[str]:
    """Yield a warning for each source that launches several wavelengths, which a fit with one wavelength misjudges."""
    if model.mesh is None:
        return
    for name in dict.fromkeys(path.source for path in model.to_wiring().inputs):
        optics = model.devices[name].optics
        if optics is not None and optics.lanes_nm:
            yield (
                f"{name} launches {len(optics.lanes_nm)} wavelengths, but a calibration assumes one per source. It may "
                "not be certified; use a laser at this input instead."
            )
