"""Requests to the manager of a bench's fabric, from programs that do not hold the bench.

A request is a file in the state directory; the manager writes the outcome to another file. A request names its time and
the manager that it is meant for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lumion_hw.circuits.lock import LockOwner
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import json_text, rename_key
from lumion_hw.files.reading import read_json
from lumion_hw.files.writing import write_file, writing

if TYPE_CHECKING:
    from lumion_hw.fabric.manager import FabricManager

# A sender withdraws its request after 30 s. One that was killed cannot, and its request must not act much later.
MAX_AGE_S = 60.0
"""Older requests are refused."""
_FOLDER = "requests"
# A request takes less than 1 kB: anything larger is another file, and must not fill the manager's memory.
_MAX_BYTES = 65536
_FILE_KIND = "a request to the fabric's manager"


@dataclass(frozen=True)
class FabricRequest:
    """A request to a manager.

    Attributes:
        action: ``fail``, ``repaired`` or ``recover``.
        unit: The server or accelerator; empty for ``recover``.
        reason: Reason, recorded in the history.
    """

    action: str
    unit: str = ""
    reason: str = "declared by hand"

    def perform(self, manager: FabricManager) -> None:
        """Carry out the request, then measure the circuits of all jobs.

        Raises:
            ConfigError: The request or the server does not exist, or the state of the server does not allow the
                request.
            CircuitError: A circuit of a job carries no light afterwards.
            LumionError: A device failed, or a journal cannot be written.
        """
        actions: dict[str, Callable[[], object]] = {
            "fail": lambda: manager.mark_failed(self.unit, self.reason),
            "repaired": lambda: manager.mark_repaired(self.unit),
            "recover": manager.begin,
        }
        if self.action not in actions:
            raise ConfigError(f"there is no request {self.action[:40]!r}", hint=f"Requests: {', '.join(actions)}.")
        actions[self.action]()
        manager.check_job_circuits()


@dataclass(frozen=True)
class Outcome:
    """Outcome of a request to the fabric's manager.

    Attributes:
        error: Reason why the request failed; empty if it succeeded.
        exit_code: Exit code of a command that reports this outcome.
    """

    error: str = ""
    exit_code: int = 0


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
            document: Any = read_json(path, "the outcome of a request", max_bytes=_MAX_BYTES)
            return Outcome(str(document["error"]), int(document["exit_code"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path} is not the outcome of a request ({error!r})") from error
        finally:
            path.unlink(missing_ok=True)

    def serve(self, owner: LockOwner, perform: Callable[[FabricRequest], None]) -> None:
        """Carry out all waiting requests and write their outcomes. No request causes an exception.

        Args:
            owner: This program, as the owner of the bench.
            perform: Carries out one request; an error that it raises becomes the outcome.
        """
        with contextlib.suppress(OSError):
            for path in sorted(self._folder.glob("*.json")):
                self._serve(path, owner, perform)

    def _serve(self, path: Path, owner: LockOwner, perform: Callable[[FabricRequest], None]) -> None:
        accepted = path.with_suffix(".taken")
        try:
            # Renaming is atomic: either the sender withdraws the request or the manager works on it, never both.
            path.rename(accepted)
        except OSError:
            return  # withdrawn in the meantime
        outcome = Outcome()
        try:
            perform(_request(accepted, owner))
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
