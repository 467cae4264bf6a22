"""Requests to the manager of a bench's fabric, from programs that do not hold the bench.

A request is a file in the state directory; the manager writes the outcome to another file. A request names its time and
the manager that it is meant for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lumion_hw.bench.controller_faults import clear_faults
from lumion_hw.circuits.lock import LockOwner
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import json_text, rename_key
from lumion_hw.files.reading import MEGABYTE, read_json
from lumion_hw.files.writing import write_file, writing

if TYPE_CHECKING:
    from lumion_hw.fabric.manager import FabricManager

# A sender withdraws its request after 30 s. One that was killed cannot, and its request must not act much later.
MAX_AGE_S = 60.0
"""Older requests are refused."""
_FOLDER = "requests"
# A request takes less than 1 kB: anything larger is another file, and must not fill the manager's memory.
_MAX_BYTES = 65536
_MAX_OUTCOME_BYTES = 16 * MEGABYTE
"""Largest outcome, which contains the status of a fabric."""
_FILE_KIND = "a request to the fabric's manager"


@dataclass(frozen=True)
class FabricRequest:
    """A request to a manager.

    Attributes:
        action: One of :data:`ACTIONS`.
        unit: The server or accelerator; the name or id of the fault for ``clear``; otherwise empty.
        reason: Reason of ``fail`` and ``drain``, recorded in the history.
    """

    action: str
    unit: str = ""
    reason: str = "declared by hand"

    def perform(self, manager: FabricManager) -> dict[str, Any]:
        """Carry out the request, measure the circuits of all jobs, and return the status of the fabric afterwards.

        Raises:
            ConfigError: The request, the unit or the fault does not exist, or the state of the unit does not allow the
                request.
            CircuitError: A circuit of a job carries no light afterwards, or no spare can take the place of a unit.
            SafetyError: The cause of a fault is still present.
            LumionError: A device failed, or a journal cannot be written.
        """
        if self.action not in ACTIONS:
            raise ConfigError(f"there is no request {self.action[:40]!r}", hint=f"Requests: {', '.join(ACTIONS)}.")
        action = ACTIONS[self.action]
        if action is not None:
            action(manager, self)
            manager.check_job_circuits()
        status = manager.status
        return {} if status is None else status.document()


def _clear(manager: FabricManager, request: FabricRequest) -> None:
    clear_faults(manager.bench, request.unit, manager.service.lock.owner.name)
    manager.begin()


ACTIONS: Mapping[str, Callable[[FabricManager, FabricRequest], object] | None] = {
    "status": None,
    "clear": _clear,
    "recover": lambda manager, request: manager.begin(),
    "fail": lambda manager, request: manager.mark_failed(request.unit, request.reason),
    "drain": lambda manager, request: manager.drain(request.unit, request.reason),
    "repaired": lambda manager, request: manager.mark_repaired(request.unit),
}
"""What each request does, before the circuits of all jobs are measured; ``status`` changes and measures nothing."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a request to the fabric's manager.

    Attributes:
        error: Reason why the request failed; empty if it succeeded.
        exit_code: Exit code of a command that reports this outcome.
        status: Status of the fabric after a request that succeeded.
    """

    error: str = ""
    exit_code: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)


class RequestBox:
    """Requests to the fabric's manager of one bench, stored as files in the bench's state directory."""

    def __init__(self, directory: AnyPath) -> None:
        self._folder = Path(directory) / _FOLDER

    def send(self, request: FabricRequest, manager: LockOwner) -> str:
        """Write a request and return its number.

        Raises:
            LumionError: The request cannot be written.
        """
        number = uuid.uuid4().hex
        document = {
            **rename_key(dataclasses.asdict(request), "action", "what"),
            "sent_s": time.time(),
            "manager": _identity(manager),
        }
        with writing(_FILE_KIND, self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        write_file(self._path(number, "json"), _FILE_KIND, json_text(document) + "\n", "any")
        return number

    def withdraw(self, number: str) -> bool:
        """Withdraw a request; return false if the manager has already started with it."""
        try:
            self._path(number, "json").unlink()
        except OSError:
            return False
        return True

    def outcome(self, number: str) -> Outcome | None:
        """Read and delete the outcome of a request; ``None`` if the manager has not finished yet.

        Raises:
            ConfigError: The outcome cannot be read.
        """
        path = self._path(number, "done")
        if not path.exists():
            return None
        try:
            document: Any = read_json(path, "the outcome of a request", max_bytes=_MAX_OUTCOME_BYTES)
            return Outcome(str(document["error"]), int(document["exit_code"]), dict(document.get("status", {})))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path} is not the outcome of a request ({error!r})") from error
        finally:
            path.unlink(missing_ok=True)

    def serve(self, owner: LockOwner, perform: Callable[[FabricRequest], Mapping[str, Any] | None]) -> None:
        """Carry out all waiting requests and write their outcomes. No request causes an exception.

        Args:
            owner: This program, as the owner of the bench.
            perform: Carries out one request and may return the status of the fabric; an error that it raises becomes
                the outcome.
        """
        with contextlib.suppress(OSError):
            for path in sorted(self._folder.glob("*.json")):
                self._serve(path, owner, perform)

    def _serve(
        self, path: Path, owner: LockOwner, perform: Callable[[FabricRequest], Mapping[str, Any] | None]
    ) -> None:
        accepted = path.with_suffix(".taken")
        try:
            # Renaming is atomic: either the sender withdraws the request or the manager works on it, never both.
            path.rename(accepted)
        except OSError:
            return  # withdrawn in the meantime
        outcome = Outcome("the manager ended before the request was done", 1)
        try:
            outcome = Outcome(status=perform(_request(accepted, owner)) or {})
        except LumionError as error:
            outcome = Outcome(str(error), error.exit_code)
        except Exception as error:  # noqa: BLE001 - a request must not end the manager
            outcome = Outcome(f"unexpected {type(error).__name__}: {error}", 1)
        finally:
            with contextlib.suppress(LumionError):
                write_file(path.with_suffix(".done"), _FILE_KIND, json_text(dataclasses.asdict(outcome)) + "\n", "any")
            accepted.unlink(missing_ok=True)

    def _path(self, number: str, suffix: str) -> Path:
        return self._folder / f"{number}.{suffix}"


def _request(path: Path, owner: LockOwner) -> FabricRequest:
    document: Any = read_json(path, _FILE_KIND, max_bytes=_MAX_BYTES)
    try:
        request = FabricRequest(str(document["what"]), str(document["unit"]), str(document["reason"]))
        age_s, manager = time.time() - float(document["sent_s"]), str(document["manager"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is not a request to a fabric's manager ({error!r})") from error
    if manager != _identity(owner):
        raise ConfigError(f"the request is for another manager, {manager}", hint="Send it again.")
    if not age_s <= MAX_AGE_S:
        raise ConfigError(
            f"the request is {age_s:.0f} s old, so nobody waits for it", hint="Send it again if it is still wanted."
        )
    return request


def _identity(manager: LockOwner) -> str:
    return f"{manager.name} since {manager.since_utc}"
