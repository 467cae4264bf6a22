"""The one process that owns a bench, real or emulated, and all that others may ask of it.

Outline: the signatures below stay, their bodies follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import CircuitPlan, CircuitRequest
from lumion_hw.files import AnyPath
from lumion_hw.serving.lease import Caller, LeaseBook
from lumion_hw.serving.state import MarginSample, ServedJob, ServedState


class Subscription:
    """A place for the newest state: one that is not taken in time is replaced. Use it as a context manager.

    Attributes:
        missed: States that were published and never taken.
    """

    missed: int

    def wait(self, timeout_s: float) -> ServedState | None:
        """Return the newest state that was not taken yet; ``None`` if none comes in time, or the server has ended."""
        raise NotImplementedError

    def close(self) -> None:
        """End it; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BenchOwner:
    """Owns a bench: reads it, keeps circuits and fabric, does what is asked, and publishes what it sees. Thread-safe.

    Attributes:
        bench: The open bench.
        lease: Who may change it.
    """

    bench: Bench
    lease: LeaseBook

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        open_bench: Callable[[], Bench],
        directory: AnyPath,
        *,
        record: AnyPath | None = None,
        take_over: str | None = None,
        lease_s: float = 600.0,
    ) -> Iterator[Self]:
        """Lock and open a bench, read and keep it for the time of a block; then all is left as the bench file says."""
        raise NotImplementedError
        yield

    @property
    def state(self) -> ServedState:
        """What was published last."""
        raise NotImplementedError

    @property
    def history(self) -> tuple[MarginSample, ...]:
        """Margins of the circuits over time, oldest first, a bounded number of them."""
        raise NotImplementedError

    def subscribe(self) -> Subscription:
        """Return a place for the newest state, which is full at once; a new one comes at least 4 times a second."""
        raise NotImplementedError

    def write(self, name: str, value: object, caller: Caller) -> None:
        """Set one point, by the code that sets it in process.

        Raises:
            BusyError: The caller does not hold the lease; the message says who does.
            ConfigError: There is no such point, it cannot be written, or the value is none of its kind or shape.
            LimitError: Beyond a limit; nothing was changed.
            LumionError: As of the device.
        """
        raise NotImplementedError

    def call(
        self, device: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], caller: Caller
    ) -> object:
        """Call a method of a device's interface; what only reads needs no lease. Raises as the device, and BusyError."""
        raise NotImplementedError

    def ask(self, what: str, arguments: Mapping[str, Any], caller: Caller) -> ServedJob:
        """Begin a job and return it at once: its progress and its end are in the state.

        ``connect`` (``circuits``: names such as ``a:b``, or documents of a request), ``disconnect`` (``circuits``; all
        without), ``calibrate`` (``out``, ``seed``), ``recover``, ``fail`` (``unit``, ``because``) and ``repaired``
        (``unit``).

        Raises:
            BusyError: The caller does not hold the lease, or another job runs.
            ConfigError: There is no such job, its arguments are wrong, or the bench has no record.
        """
        raise NotImplementedError

    def wait(self, job: ServedJob, timeout_s: float | None = None) -> ServedJob:
        """Return a job when it has ended, or as it is after a time. Raises what the job has failed with."""
        raise NotImplementedError

    def what_if(self, requests: Sequence[CircuitRequest]) -> CircuitPlan:
        """Plan circuits beside what stands, without touching anything. Raises as planning, ConfigError without record."""
        raise NotImplementedError
