"""Jobs of a served bench that connect and disconnect circuits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.controller_faults import latched_faults
from lumion_hw.bench.file.module_optics import ModuleOptics
from lumion_hw.circuits import CircuitProof, CircuitRequest, CircuitService
from lumion_hw.circuits.plan.difference import OnRefusal
from lumion_hw.circuits.state import change_document, proof_document
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.serving.joined_jobs import JoinedJobs
from lumion_hw.serving.ocs.change import OcsSettings, check_not_blocked, parse_change, resolve
from lumion_hw.serving.ocs.ports import OcsPorts

Job = Callable[[], Any]


class CircuitJobs:
    """Jobs that change circuits. Each method checks its arguments and returns a function that does the work.

    Args:
        directory: State directory of the bench.
        require_circuits: Returns the circuits, or raises an error if clients may not change circuits.
        report_progress: Called with the name of each step.
        after_change: Called after circuits were changed.

    Attributes:
        settings: Labels, blocked ports and held cross-connects of the bench as an optical circuit switch.
        joined: Steps of a program that joins several benches.

    Raises:
        ConfigError: The file with the settings is damaged.
    """

    def __init__(
        self,
        bench: Bench,
        directory: AnyPath,
        require_circuits: Callable[[], CircuitService],
        report_progress: Callable[[str], None],
        after_change: Callable[[], None],
    ) -> None:
        self._bench, self._directory = bench, Path(directory)
        self._require_circuits, self._report, self._after_change = require_circuits, report_progress, after_change
        self._ports = OcsPorts(bench.wiring)
        self.settings = OcsSettings.load(self._directory)
        self.joined = JoinedJobs(require_circuits, circuit_request, self._return_from_trip, after_change)

    def connect(self, circuits: Sequence[object]) -> Job:
        """Connect circuits, given as names such as ``a:b`` or as request documents."""
        requests, service = [circuit_request(circuit) for circuit in _as_list(circuits)], self._require_circuits()
        check_not_blocked(requests, self._ports, self.settings)

        def work() -> list[dict[str, Any]]:
            self._return_from_trip(service)
            proofs = service.connect(requests, milestone=self._report)
            self._after_change()
            return [{"circuit": proof.circuit.request.name, **proof_document(proof)} for proof in proofs]

        return work

    def apply(self, circuits: Sequence[object], on_refusal: str = "refuse_all", dry_run: object = False) -> Job:
        """Change the circuits to a set of wanted ones."""
        requests, service = [circuit_request(circuit) for circuit in _as_list(circuits)], self._require_circuits()
        check_not_blocked(requests, self._ports, self.settings)
        if on_refusal not in get_args(OnRefusal):
            raise ConfigError(f"on_refusal is {on_refusal!r}", hint=f"Give {' or '.join(get_args(OnRefusal))}.")
        is_dry_run = str(dry_run).lower() in ("true", "1")
        return lambda: self._apply(service, requests, cast(OnRefusal, on_refusal), is_dry_run)

    def plan_difference(self, circuits: Sequence[object]) -> dict[str, Any]:
        """See :meth:`~lumion_hw.serving.owner.BenchOwner.plan_difference`."""
        requests = [circuit_request(circuit) for circuit in _as_list(circuits)]
        return change_document(self._require_circuits().plan_difference(requests), ())

    def cross_connect(self, change: Mapping[str, Any]) -> Job:
        """Change ports and cross-connects of the bench as an optical circuit switch, in one commit."""
        parsed, service = parse_change(change), self._require_circuits()

        def resolved() -> tuple[OcsSettings, tuple[CircuitRequest, ...]]:
            return resolve(parsed, self._ports, self.settings, [circuit.request for circuit in service.state.circuits])

        def work() -> dict[str, Any]:
            settings, requests = resolved()
            if not parsed.dry_run:
                settings.save(self._directory)  # first, because a full disk must be found before circuits change
            try:
                document = self._apply(service, requests, "refuse_all", parsed.dry_run)
            except BaseException:
                self.settings.save(self._directory)
                raise
            if not parsed.dry_run:
                self.settings = settings
            return {**document, "dry_run": parsed.dry_run}

        resolved()  # mistakes are reported before the job starts
        return work

    def disconnect(self, circuits: Sequence[str] | None = None) -> Job:
        """Disconnect circuits by name; by default all."""
        service = self._require_circuits()
        names = None if circuits is None else [str(circuit) for circuit in _as_list(circuits)]

        def work() -> list[str]:
            self._return_from_trip(service)
            removed = service.disconnect(names)
            self._after_change()
            return [circuit.name for circuit in removed]

        return work

    def _apply(
        self, service: CircuitService, requests: Sequence[CircuitRequest], on_refusal: OnRefusal, is_dry_run: bool
    ) -> dict[str, Any]:
        self._return_from_trip(service)
        difference, proofs = service.plan_difference(requests), tuple[CircuitProof, ...]()
        if not is_dry_run:
            proofs = service.apply(difference, on_refusal, milestone=self._report)
            self._after_change()
        return change_document(difference, proofs)

    def _return_from_trip(self, service: CircuitService) -> None:
        """Set the circuits up again if a fault has switched the heaters off."""
        if latched_faults(self._bench) or service.journal.unfinished is not None:
            service.restore_after_shutdown()


def _as_list(value: object) -> list[Any]:
    if isinstance(value, str):
        return [name for name in re.split(r"[,\s]+", value) if name]
    if isinstance(value, Sequence):
        return list(value)
    raise ConfigError(
        f"{value!r} is not a list of circuits", hint="Write circuits as sfp-a:sfp-b, separated by commas."
    )


def circuit_request(value: object) -> CircuitRequest:
    """Return a circuit request from a name such as ``sfp-a:sfp-b``, or from a document of its fields.

    Raises:
        ConfigError: The value is not a circuit request.
    """
    if isinstance(value, CircuitRequest):
        return value
    if isinstance(value, Mapping):
        from pydantic import TypeAdapter, ValidationError

        try:
            signal = value.get("signal")
            arriving = None if signal is None else TypeAdapter(ModuleOptics).validate_python(signal)
            return CircuitRequest(**{**value, "signal": arriving})
        except (TypeError, ValidationError) as error:
            raise ConfigError(f"invalid circuit request: {error}") from error
    source, colon, target = str(value).partition(":")
    if not (source and colon and target) or ":" in target:
        raise ConfigError(f"{str(value)[:60]!r} is not a pair of modules", hint="Write sfp-a:sfp-b.")
    return CircuitRequest(source, target)
