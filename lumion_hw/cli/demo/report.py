"""The results of a demo run, its files, Markdown report and JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.report.headline import headline
from calibration.report.summary import calibration_summary
from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import CircuitProof, CircuitRequest
from lumion_hw.cli.demo.artifacts import Artifacts
from lumion_hw.fabric import Recovery
from lumion_hw.files.escaping import markdown
from lumion_hw.files.own_files import CREATOR
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

EMULATED = "mesh, optics, modules, meters, controllers, fibres and amplifiers"
NOT_REHEARSED = "network interfaces, process group, state transfer and training step (`lumion rehearse` does)"

CIRCUIT_HEADERS = (
    "circuit", "ports", "hops", "predicted dB", "measured dB", "received dBm", "margin dB", "LOS", "proven"
)  # fmt: skip
BUDGET_HEADERS = (
    "circuit", "launch dBm", "gain dB", "fixed dB", "mesh dB", "received dBm", "sensitivity", "overload", "margin dB"
)  # fmt: skip


@dataclass(frozen=True)
class DemoRun:
    """The results of a demo run.

    Attributes:
        before: Measured circuits before the fault.
        crosstalk_db: Signal over all other light at the output of each circuit before the fault.
        recovery: Replacement of the failed server by a spare.
    """

    record: CalibrationRecord
    before: tuple[CircuitProof, ...]
    crosstalk_db: dict[CircuitRequest, float | None]
    recovery: Recovery
    artifacts: Artifacts


def circuit_name(proof: CircuitProof) -> str:
    """Return the name of a circuit as ``source → target``."""
    return f"{proof.circuit.request.source} → {proof.circuit.request.target}"


def _number(value: float | None, digits: int = 1) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def circuit_rows(proofs: Iterable[CircuitProof]) -> list[list[object]]:
    """Return the rows of the circuit table in the demo report."""
    return [
        [
            circuit_name(proof),
            f"{proof.circuit.path.source} → {proof.circuit.path.target}",
            proof.circuit.path.hops,
            _number(proof.circuit.budget.mesh_loss_db, 2),
            _number(proof.measured_loss_db, 2),
            _number(proof.received_dbm),
            _number(proof.margin_db),
            "yes" if proof.los else "no",
            "yes" if proof.proven else "NO",
        ]
        for proof in proofs
    ]


def budget_rows(proofs: Iterable[CircuitProof]) -> list[list[object]]:
    """Return the rows of the link budget table in the demo report."""
    rows: list[list[object]] = []
    for proof in proofs:
        budget = proof.circuit.budget
        figures = (
            budget.launch_dbm, budget.gain_db, -budget.fixed_loss_db, -budget.mesh_loss_db, budget.received_dbm,
            budget.sensitivity_dbm, budget.overload_dbm, budget.margin_db,
        )  # fmt: skip
        rows.append([circuit_name(proof), *(f"{figure:+.1f}" for figure in figures)])
    return rows


def span_rows(recovery: Recovery) -> list[list[object]]:
    """Return the rows of the table of recovery steps in the demo report."""
    return [
        [span.name, f"{span.bench_ms:.2f}", f"{span.at_ms:.2f}", f"{span.cpu_ms:.1f}", span.source]
        for span in recovery.spans
    ]


CROSSTALK_HEADERS = ("circuit", "signal over all other light, dB")


def crosstalk_rows(crosstalk_db: Mapping[CircuitRequest, float | None]) -> list[list[object]]:
    """Return the rows of the crosstalk table in the demo report."""
    return [[f"{request.source} → {request.target}", _number(db)] for request, db in crosstalk_db.items()]


SPAN_HEADERS = ("step", "bench ms", "since fault ms", "CPU ms", "source")


def circuit_document(proof: CircuitProof) -> dict[str, Any]:
    """Return one circuit as a JSON document."""
    budget = proof.circuit.budget
    return {
        "source": proof.circuit.request.source,
        "target": proof.circuit.request.target,
        "source_port": proof.circuit.path.source,
        "target_port": proof.circuit.path.target,
        "pucs": list(proof.circuit.path.pucs),
        "hops": proof.circuit.path.hops,
        "predicted_loss_db": budget.mesh_loss_db,
        "measured_loss_db": proof.measured_loss_db,
        "loss_error_db": proof.loss_error_db,
        "received_dbm": proof.received_dbm,
        "sensitivity_dbm": budget.sensitivity_dbm,
        "overload_dbm": budget.overload_dbm,
        "margin_db": proof.margin_db,
        "los": proof.los,
        "alignment_reads": None if proof.alignment is None else proof.alignment.reads,
        "proven": proof.proven,
        "failures": list(proof.failures),
    }


def recovery_document(recovery: Recovery) -> dict[str, Any]:
    """Return the replacement of a server as a JSON document, with bench time and CPU time of each step."""
    return {
        "failed": recovery.failed,
        "spare": recovery.spare,
        "spans_ms": {span.name: span.bench_ms for span in recovery.spans},
        "spans_cpu_ms": {span.name: span.cpu_ms for span in recovery.spans},
        "since_fault_ms": {span.name: span.at_ms for span in recovery.spans},
        "sources": {span.name: span.source for span in recovery.spans},
        "kept": [f"{request.source} → {request.target}" for request in recovery.kept],
        "emulated": EMULATED,
        "not_rehearsed": NOT_REHEARSED,
    }


def demo_document(bench: Bench, demo_run: DemoRun, seed: int, left_out: Sequence[str]) -> dict[str, Any]:
    """Return the results of a run as a JSON document; ``left_out`` are the missing parts of the report."""
    return {
        "bench": {
            "name": bench.model.name,
            "seed": seed,
            "emulated": bench.is_emulated,
            "devices": {name: getattr(device, "kind", "") for name, device in bench.model.devices.items()},
            "controller_serial": bench.mesh.controller.info.serial,
            "pucs": bench.mesh.topology.n_pucs,
            "ports": bench.mesh.topology.n_ports,
        },
        "calibration": calibration_summary(demo_run.record),
        "circuits": {
            "before": [
                {**circuit_document(proof), "crosstalk_db": demo_run.crosstalk_db.get(proof.circuit.request)}
                for proof in demo_run.before
            ],
            "after": [circuit_document(proof) for proof in demo_run.recovery.proofs],
        },
        "recovery": recovery_document(demo_run.recovery),
        "artifacts": demo_run.artifacts.document(),
        "left_out": list(left_out),
    }


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table with a dash in place of each ``None``."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    lines += ["| " + " | ".join("–" if cell is None else markdown(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def verdict(demo_run: DemoRun) -> str:
    """Return the result of the whole demo run in one paragraph."""
    return f"{headline(demo_run.record).verdict} {outcome(demo_run)}"


def outcome(demo_run: DemoRun) -> str:
    """Return the result of connecting and recovering in two sentences."""
    recovery = demo_run.recovery
    before, after = (
        f"{sum(proof.proven for proof in proofs)} of {len(proofs)} circuits"
        for proofs in (demo_run.before, recovery.proofs)
    )
    seconds = recovery.spans[-1].at_ms / 1e3 if recovery.spans else 0.0
    return (
        f"{before} were verified by light. Then {recovery.failed} failed and {recovery.spare} took its place: "
        f"{after} were verified {seconds:.2f} s after the fault (simulated time)."
    )


def _figure_rows(record: CalibrationRecord) -> list[list[object]]:
    return [[name, value] for name, value in headline(record).figures]


def _misses(record: CalibrationRecord) -> str:
    figures = headline(record)
    lines = [f"- {markdown(miss)}" for miss in figures.misses] + [
        f"- Fault: {markdown(fault)}" for fault in figures.faults
    ]
    return "\n".join(lines) or "No goal was missed, and no fault was found."


def _details(title: str, text: str) -> str:
    return f"<details><summary>{markdown(title)}</summary>\n\n{text}\n\n</details>"


def report_text(bench: Bench, demo_run: DemoRun, seed: int) -> str:
    """Return the report of a demo run as Markdown."""
    recovery, calibration_page = demo_run.recovery, demo_run.artifacts.calibration_report.name
    budgets = (
        "Losses are measured from fibre to fibre over the mesh. The received power is calculated from the meter on the "
        "receiver's tap. Every input has a booster amplifier: a 10GBASE-ER pair alone could bridge only a few hops."
    )
    times = (
        "Bench time is time on the emulated bench. CPU time is the time this software needed. The two are never added. "
        f"Not part of this demo: {NOT_REHEARSED}."
    )
    bench_text = (
        f"{len(bench.model.devices)} devices, {bench.mesh.topology.n_pucs} PUCs, controller "
        f"{markdown(bench.mesh.controller.info.serial)}. Emulated: {EMULATED}. Seed {seed}."
    )
    parts = [
        f"<!-- {CREATOR} -->\n# {markdown(bench.model.name)}: run report",
        markdown(verdict(demo_run)),
        "![The mesh with its circuits after the recovery](mesh.svg)",
        f"## Key figures\n\n{markdown_table(('calibration', ''), _figure_rows(demo_run.record))}",
        f"## Misses\n\n{_misses(demo_run.record)}",
        "## Details",
        f"All figures and maps of the calibration: [{calibration_page}]({calibration_page}).",
        _details("Bench", bench_text),
        _details(
            "Circuits before the fault",
            "\n\n".join(
                [
                    markdown_table(CIRCUIT_HEADERS, circuit_rows(demo_run.before)),
                    budgets,
                    markdown_table(BUDGET_HEADERS, budget_rows(demo_run.before)),
                    markdown_table(CROSSTALK_HEADERS, crosstalk_rows(demo_run.crosstalk_db)),
                    "![Paths before the fault](mesh-before.svg)",
                ]
            ),
        ),
        _details(
            f"{recovery.failed} fails and is replaced by {recovery.spare}",
            "\n\n".join(
                [
                    markdown_table(SPAN_HEADERS, span_rows(recovery)),
                    "![Timeline of the recovery](timeline.svg)",
                    times,
                    markdown_table(CIRCUIT_HEADERS, circuit_rows(recovery.proofs)),
                    markdown_table(BUDGET_HEADERS, budget_rows(recovery.proofs)),
                ]
            ),
        ),
    ]
    return "\n\n".join(parts) + "\n"
