"""The demo on a terminal: the few figures that fit two screens of 80 columns and 40 lines.

All other figures are in the files of the run.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lumion_hw.cli.common.output import table
from lumion_hw.files.escaping import one_line

if TYPE_CHECKING:
    from calibration.report.headline import Headline
    from lumion_hw.bench.file.model import BenchModel
    from lumion_hw.circuits import CircuitProof
    from lumion_hw.cli.demo.artifacts import Artifacts
    from lumion_hw.fabric import Recovery
    from lumion_hw.mesh.layout.topology import MeshTopology

COLUMNS = 80
_MAX_CIRCUITS, _MAX_REMARKS = 12, 6
_MAX_NAME = 29
"""Longest name of a circuit: with the other columns of the table 80 columns."""


def wrapped(text: str, indent: str = "") -> str:
    """Return text wrapped to the width of the terminal, lines after the first indented."""
    return textwrap.fill(
        one_line(text), COLUMNS - 1, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def bench_text(model: BenchModel, mesh: MeshTopology) -> str:
    """Return the size of a bench and the numbers of its servers and devices, in two lines."""
    from lumion_hw.bench.file.known_kinds import kind_named
    from lumion_hw.bench.file.roles import Role

    kinds = [kind_named(device.kind) for device in model.devices.values()]
    roles = [kind.role for kind in kinds if kind is not None and kind.role not in (Role.MESH, Role.MESH_STATES)]
    counts = {"server": len(model.servers)} | Counter(role.label for role in roles)
    size = f"{model.name} (emulated): a mesh of {mesh.n_pucs} unit cells (PUCs) with {mesh.n_ports} ports"
    return f"{wrapped(size)}\n{wrapped(', '.join(_counted(*item) for item in counts.items()), '  ')}"


def _counted(name: str, count: int) -> str:
    return f"{count} {name}{'' if count == 1 else 'es' if name.endswith('ch') else 's'}"


def calibration_text(headline: Headline) -> str:
    """Return verdict, key figures, missed goals and faults of a calibration; long lists are shortened."""
    remarks = [f"missed: {miss}" for miss in headline.misses] + [f"fault: {fault}" for fault in headline.faults]
    if len(remarks) > _MAX_REMARKS:
        remarks[_MAX_REMARKS - 1 :] = [f"{len(remarks) - _MAX_REMARKS + 1} more in the report"]
    items = [f"{name}: {value}" for name, value in headline.figures] + remarks
    return "\n".join(["Calibration", wrapped(headline.verdict), *(wrapped(f"- {item}", "  ") for item in items)])


def circuits_text(proofs: Sequence[CircuitProof]) -> str:
    """Return the table of circuits with predicted and measured loss; a long table is shortened."""
    rows = [
        [
            _shortened(f"{proof.circuit.request.source} → {proof.circuit.request.target}"),
            proof.circuit.path.hops,
            f"{proof.circuit.budget.mesh_loss_db:.2f} dB",
            _decibels(proof.measured_loss_db, 2),
            _decibels(proof.margin_db, 1),
            "yes" if proof.proven else "NO",
        ]
        for proof in proofs
    ]
    headers = ("circuit", "hops", "predicted", "measured", "margin", "verified")
    title = "Circuits: predicted and measured loss, margin above the receiver's sensitivity"
    more = f"\n{len(rows) - _MAX_CIRCUITS} more in the report" if len(rows) > _MAX_CIRCUITS else ""
    return f"{title}\n{table(headers, rows[:_MAX_CIRCUITS])}{more}"


def recovery_text(recovery: Recovery) -> str:
    """Return the table of the steps of a recovery."""
    title = f"{recovery.failed} fails and is replaced by {recovery.spare} (simulated time)"
    rows = [[span.name.replace("_", " "), f"{span.bench_ms:.2f}", f"{span.at_ms:.2f}"] for span in recovery.spans]
    return f"{wrapped(title)}\n{table(('step', 'duration ms', 'since the fault ms'), rows)}"


def files_text(artifacts: Artifacts) -> str:
    """Return the directory of the run and its files."""
    contents = artifacts.contents()
    width = max(len(name) for name, _ in contents)
    files = (f"  {name:{width}}  {text}" for name, text in contents)
    return "\n".join([f"Files in {one_line(artifacts.report.parent)}/", *files])


def _decibels(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f} dB"


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
