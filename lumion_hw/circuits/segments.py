"""Segments of circuits that cross several meshes, on one bench: prepared, lit, and then kept or undone.

A program that joins the benches calls the steps on all of them. Between :meth:`BenchSegments.prepare` and
:meth:`BenchSegments.keep` the bench's journal has an unfinished change, so that a program that opens the bench after a
crash restores the former circuits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.service import CircuitService
from lumion_hw.circuits.setup import PreparedChange
from lumion_hw.circuits.state import proof_document
from lumion_hw.errors import BusyError, CircuitError, ConfigError, LumionError


@dataclass(frozen=True)
class _Prepared:
    """A prepared change: its name, and the open entry in the bench's journal."""

    name: str
    change: PreparedChange
    journal_entry: contextlib.ExitStack


class BenchSegments:
    """Prepares, lights, keeps and undoes segments on one bench. Use from one thread.

    Args:
        service: The circuits of the bench.
    """

    def __init__(self, service: CircuitService) -> None:
        self._service = service
        self._prepared: _Prepared | None = None

    @property
    def prepared(self) -> str | None:
        """Name of the change that is prepared and neither kept nor undone; ``None`` if there is none."""
        return None if self._prepared is None else self._prepared.name

    def plan(self, requests: Sequence[CircuitRequest], removed: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the plan of segments beside the active circuits, as JSON documents; nothing is changed.

        Args:
            requests: The segments.
            removed: Names of the active circuits that they replace.

        Raises:
            LumionError: As for :func:`~lumion_hw.circuits.plan_circuits`.
        """
        plan = self._service.setup.plan_change(self._active(removed), requests)
        return [_planned(circuit) for circuit in plan.circuits if circuit.request in requests]

    def prepare(self, name: str, requests: Sequence[CircuitRequest], removed: Collection[str] = ()) -> None:
        """Program the mesh for segments without light, and hold this state.

        Args:
            name: Name of the change.
            requests: The segments.
            removed: Names of the active circuits that they replace.

        Raises:
            BusyError: Another change is prepared.
            LumionError: As for :meth:`~lumion_hw.circuits.setup.PathSetup.prepare`; nothing is changed.
        """
        self.check_idle()
        names, service = [*(request.name for request in requests), *removed], self._service
        with contextlib.ExitStack() as stack:
            stack.enter_context(service.change("prepare", names))
            change = service.setup.prepare(requests, self._active(removed))
            self._prepared = _Prepared(name, change, stack.pop_all())

    def light(self, name: str, arriving_dbm: Mapping[str, float | None]) -> list[dict[str, Any]]:
        """Light some prepared segments and measure them.

        Args:
            name: Name of the change.
            arriving_dbm: Power that arrives from another mesh, by segment; ``None`` for a segment that begins at a
                module.

        Returns:
            The measured values of each segment as a JSON document, with ``failures`` (a list of clauses; empty if it
            is proven) and ``stray_dbm``.

        Raises:
            ConfigError: This change is not prepared.
            LumionError: A device failed.
        """
        prepared, setup = self._require(name), self._service.setup
        requests = [request for request in prepared.change.requests if request.name in arriving_dbm]
        for request in requests:
            if (end := setup.bench.fibre_ends.get(request.source)) is not None:
                end.report_arriving(arriving_dbm[request.name])
        proofs = setup.light(prepared.change, requests)
        stray_dbm = None if all(proof.proven for proof in proofs) else setup.stray_dbm()
        return [{**_measured(proof), "stray_dbm": stray_dbm} for proof in proofs]

    def blink(self, name: str, dark: Collection[str]) -> None:
        """Switch the transmitters of a prepared change off or on.

        Args:
            name: Name of the change.
            dark: Modules to switch off; those of all other lit segments are switched on.

        Raises:
            ConfigError: This change is not prepared.
            LumionError: A module failed.
        """
        bench = self._service.setup.bench
        sources = [request.source for request in self._require(name).change.proofs]
        modules = {source: bench.transponders[source] for source in sources if source not in bench.fibre_ends}
        bench.run_parallel(
            [(source, module.disable if source in dark else module.enable) for source, module in modules.items()]
        )

    def keep(self, name: str) -> None:
        """Make the prepared segments active, and record them. Does nothing if no such change is prepared.

        Raises:
            LumionError: A segment was not proven, an active circuit was disturbed, or the journal cannot be written.
                Nothing is kept on this bench.
        """
        if self.prepared != name:
            return
        prepared, service = self._require(name), self._service
        self._prepared = None
        with prepared.journal_entry:
            try:
                service.end_change(service.setup.keep(prepared.change))
            except LumionError as error:
                service.setup.undo(prepared.change, str(error))
                raise

    def undo(self, name: str, reason: str) -> bool:
        """Restore the bench as it was before :meth:`prepare`.

        Returns:
            Whether this change was prepared; otherwise nothing is done.

        Raises:
            LumionError: The controller failed; the next program that opens the bench restores the former circuits.
        """
        if self.prepared != name:
            return False
        prepared = self._require(name)
        self._prepared = None
        error = CircuitError(reason)
        try:
            self._service.setup.undo(prepared.change, reason)
        finally:
            prepared.journal_entry.__exit__(CircuitError, error, None)
        return True

    def check_idle(self) -> None:
        """Raise ``BusyError`` if a change is prepared."""
        if self.prepared is not None:
            raise BusyError(
                f"the change {self.prepared} of joined meshes is prepared on this bench and not finished",
                hint="If its program has ended, run `lumion joined recover FILE` on its host.",
            )

    def _active(self, names: Collection[str]) -> list[CircuitRequest]:
        active = self._service.setup.active
        return [circuit.request for circuit in (active.circuits if active else ()) if circuit.request.name in names]

    def _require(self, name: str) -> _Prepared:
        if self._prepared is None or self._prepared.name != name:
            raise ConfigError(
                f"the change {name} of joined meshes is not prepared on this bench",
                hint="The bench was opened again since, which undoes it. Connect the circuits again.",
            )
        return self._prepared


def _planned(circuit: PlannedCircuit) -> dict[str, Any]:
    budget = circuit.budget
    return {
        "circuit": circuit.request.name,
        "hops": circuit.hops,
        "loss_db": round(budget.mesh_loss_db, 3),
        "sigma_db": round(budget.loss_sigma_db, 3),
        "received_dbm": round(budget.received_dbm, 3),
        "margin_db": round(budget.margin_db, 3),
    }


def _measured(proof: CircuitProof) -> dict[str, Any]:
    return {"circuit": proof.circuit.request.name, **proof_document(proof), "failures": list(proof.failures)}
