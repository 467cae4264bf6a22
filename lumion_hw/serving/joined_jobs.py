"""Steps of a program that joins several benches, as jobs of one served bench."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from lumion_hw.circuits import CircuitHealth, CircuitRequest, CircuitService
from lumion_hw.circuits.segments import BenchSegments
from lumion_hw.errors import ConfigError, LumionError


class JoinedJobs:
    """Segments of circuits that cross several meshes, on one served bench.

    Args:
        require_circuits: Returns the circuits, or raises an error if clients may not change circuits.
        parse_request: Returns the request of a JSON document.
        before_change: Called before circuits are changed.
        after_change: Called after circuits were changed.
    """

    def __init__(
        self,
        require_circuits: Callable[[], CircuitService],
        parse_request: Callable[[object], CircuitRequest],
        before_change: Callable[[CircuitService], None],
        after_change: Callable[[], None],
    ) -> None:
        self._require_circuits, self._parse_request = require_circuits, parse_request
        self._before_change, self._after_change = before_change, after_change
        self._current: tuple[CircuitService, BenchSegments] | None = None

    @property
    def prepared(self) -> str | None:
        """Name of the change that is prepared and not finished; ``None`` if there is none."""
        return None if self._current is None else self._current[1].prepared

    def check_idle(self) -> None:
        """Raise ``BusyError`` if a change is prepared."""
        if self._current is not None:
            self._current[1].check_idle()

    def close(self) -> None:
        """Undo a prepared change, because the server stops."""
        if self._current is not None and self.prepared is not None:
            with contextlib.suppress(LumionError):
                self._current[1].undo(self.prepared, "the server stops")

    def plan(self, circuits: Sequence[object], removed: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the plan of segments instead of the removed circuits, beside the others; nothing is changed."""
        return self._segments().plan(self._requests(circuits), [str(name) for name in removed])

    def circuits(self, health: Sequence[CircuitHealth], trouble: str = "") -> dict[str, Any]:
        """Return the active circuits with their last measurements, and the prepared change.

        Args:
            health: Measured health of the circuits.
            trouble: Reason why circuits are not maintained, so that they count as broken; empty while they are.
        """
        by_name = {each.name: each for each in health}
        documents = []
        for circuit in self._require_circuits().state.circuits:
            each = by_name.get(circuit.name)
            margin_db, received_dbm = circuit.proof.get("margin_db"), circuit.proof.get("received_dbm")
            marks = [f"not checked: {trouble}"] if trouble else list(circuit.marks if each is None else each.marks)
            if each is not None and each.proof is not None:
                margin_db, received_dbm = each.proof.margin_db, each.proof.received_dbm
            documents.append(
                {
                    "circuit": circuit.name,
                    "margin_db": margin_db,
                    "received_dbm": received_dbm,
                    "marks": marks,
                    "broken": bool(trouble) or (each is not None and each.fault is not None),
                }
            )
        return {"circuits": documents, "prepared": self.prepared}

    def job(self, step: str, **values: Any) -> Callable[[], Any]:
        """Return the function for one step of the table below.

        Raises:
            BusyError: Another change is prepared.
            ConfigError: The step does not exist, or a circuit is not a valid request.
        """
        steps: Mapping[str, Callable[..., Callable[[], Any]]] = {
            "reserve": self._reserve,
            "prepare": self._prepare,
            "light": self._light,
            "blink": self._blink,
            "keep": self._keep,
            "undo": self._undo,
            "disconnect": self._disconnect,
        }
        if step not in steps:
            raise ConfigError(f"joined meshes have no step {str(step)[:40]!r}", hint=f"Give {', '.join(steps)}.")
        return steps[step](**values)

    def _segments(self) -> BenchSegments:
        service = self._require_circuits()
        if self._current is None or (self._current[0] is not service and self.prepared is None):
            self._current = service, BenchSegments(service)
        return self._current[1]

    def _requests(self, circuits: Sequence[object]) -> list[CircuitRequest]:
        return [self._parse_request(circuit) for circuit in circuits]

    def _reserve(self) -> Callable[[], Any]:
        self._segments().check_idle()
        return lambda: None  # the lease was checked when the job was started

    def _prepare(self, change: str, circuits: Sequence[object], removed: Sequence[object] = ()) -> Callable[[], Any]:
        segments, requests, service = self._segments(), self._requests(circuits), self._require_circuits()
        segments.check_idle()

        def work() -> None:
            self._before_change(service)
            segments.prepare(str(change), requests, [str(name) for name in removed])

        return work

    def _light(self, change: str, arriving_dbm: Mapping[str, float | None]) -> Callable[[], Any]:
        return partial(self._segments().light, str(change), dict(arriving_dbm))

    def _blink(self, change: str, dark: Sequence[str]) -> Callable[[], Any]:
        return partial(self._segments().blink, str(change), [str(name) for name in dark])

    def _keep(self, change: str) -> Callable[[], Any]:
        return self._changing(partial(self._segments().keep, str(change)))

    def _undo(self, change: str, reason: str = "undone by its program") -> Callable[[], Any]:
        return self._changing(partial(self._segments().undo, str(change), str(reason)))

    def _disconnect(self, circuits: Sequence[str]) -> Callable[[], Any]:
        service, segments = self._require_circuits(), self._segments()
        segments.check_idle()
        wanted = {str(name) for name in circuits}

        def work() -> None:
            names = [circuit.name for circuit in service.state.circuits if circuit.name in wanted]
            if names:
                self._before_change(service)
                service.disconnect(names)

        return self._changing(work)

    def _changing(self, work: Callable[[], Any]) -> Callable[[], Any]:
        def changed() -> Any:
            result = work()
            self._after_change()
            return result

        return changed
