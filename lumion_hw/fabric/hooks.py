"""Hooks: actions of a job when its circuits or servers change."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Protocol

from lumion_hw.errors import ConfigError, LumionError

_STDERR = 2


class JobHooks(Protocol):
    """Actions of a job when its circuits or servers change. All methods except ``stop`` wait until done.

    ``stop`` may be called while another method works on the same job: a further server has failed, and the other
    method should end.
    """

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Order the surviving members (processes) of a job to leave their communication group."""

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        """Make the job form a new communication group, in which the spare has the rank of the lost member."""

    def restore(self, job: str, members: Sequence[str]) -> None:
        """Copy the training state from another member of the job to the spare."""

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Continue the job after a recovery."""


class NoHooks:
    """Hooks that do nothing, for jobs that handle changes themselves."""

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Do nothing."""

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        """Do nothing."""

    def restore(self, job: str, members: Sequence[str]) -> None:
        """Do nothing."""

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Do nothing."""


class CommandHooks:
    """Calls an external program, without a shell: ``PROGRAM … stop|rebuild|restore|go JOB MEMBER…``.

    The last argument of ``stop`` is the failed server or accelerator. The environment repeats the arguments: see
    docs/recovery.md. The output of the program goes to standard error. A program that fails or exceeds its time limit
    is killed with its process group.

    Args:
        argv: The program and its first arguments.
        timeout_s: Time limit of one call, in s.
    """

    def __init__(self, argv: Sequence[str], timeout_s: float) -> None:
        self._argv, self._timeout_s = tuple(argv), timeout_s
        self._guard = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping: dict[str, subprocess.Popen[bytes]] = {}
        self._failed: dict[str, tuple[tuple[str, ...], str]] = {}

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Order the surviving members of a job to leave their communication group, without waiting.

        A program that still runs for this job is killed.
        """
        self._failed[job] = (tuple(members), failed)
        self._stopping.pop(job, None)
        self._stopping[job] = self._start("stop", job, members, failed)

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        """Make the job form a new communication group that includes the spare.

        Raises:
            ConfigError: The program fails, or exceeds its time limit.
        """
        # The members leave their group while circuits are switched; only the new group has to wait for them.
        stopping = self._stopping.pop(job, None)
        if stopping is not None:
            self._wait(stopping, "stop")
        self._call("rebuild", job, members)

    def restore(self, job: str, members: Sequence[str]) -> None:
        """Copy the training state from another member of the job to the spare. Raises the errors of :meth:`rebuild`."""
        self._call("restore", job, members)

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Continue the job after a recovery. Raises the errors of :meth:`rebuild`."""
        self._call("go", job, members)
        self._failed.pop(job, None)

    def close(self) -> None:
        """Kill all programs that still run; idempotent."""
        with self._guard:
            for program in self._running.values():
                _kill_group(program)
            self._running.clear()

    def _call(self, event: str, job: str, members: Sequence[str]) -> None:
        self._wait(self._start(event, job, members), event)

    def _start(self, event: str, job: str, members: Sequence[str], *last: str) -> subprocess.Popen[bytes]:
        old_members, failed = self._failed.get(job, ((), ""))
        replaced = [new for old, new in zip(old_members, members, strict=False) if old == failed != new]
        variables = {
            "LUMION_EVENT": event,
            "LUMION_JOB": job,
            "LUMION_MEMBERS": " ".join(members),
            "LUMION_FAILED": failed,
            "LUMION_REPLACED_BY": "".join(replaced),
        }
        with self._guard:
            previous = self._running.pop(job, None)
            if previous is not None and previous.poll() is None:
                _kill_group(previous)
            try:
                program = subprocess.Popen(
                    [*self._argv, event, job, *members, *last],
                    stdin=subprocess.DEVNULL,
                    stdout=_STDERR,  # the events of the manager go to standard output
                    env={**os.environ, **variables},
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(f"the job hook {self._argv[0]} cannot be run: {error.strerror}") from error
            self._running[job] = program
        return program

    def _wait(self, program: subprocess.Popen[bytes], event: str) -> None:
        try:
            code = program.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(program)
            raise ConfigError(
                f"the job hook {self._argv[0]} {event} took longer than {self._timeout_s:g} s and was ended"
            ) from None
        if code:
            _kill_group(program)
            raise ConfigError(f"the job hook {self._argv[0]} {event} ended with exit code {code}")


def _kill_group(program: subprocess.Popen[bytes]) -> None:
    """Kill a program and everything that it has started in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


class HookCalls:
    """Calls the hooks of jobs. An error of a hook is kept for the fabric's manager, and never raised.

    Args:
        hooks: The hooks.
        in_background: Whether :meth:`resume` returns at once, so that the manager can watch the fabric meanwhile.
    """

    def __init__(self, hooks: JobHooks, *, in_background: bool) -> None:
        self._hooks, self._in_background = hooks, in_background
        self._latest: dict[str, int] = {}
        self._stop_errors: dict[str, str] = {}
        self._finished: queue.SimpleQueue[tuple[int, str, str]] = queue.SimpleQueue()

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Call ``stop``; calls of an earlier :meth:`resume` of this job no longer count."""
        self._latest[job] = self._latest.get(job, 0) + 1
        self._stop_errors.pop(job, None)
        try:
            self._hooks.stop(job, members, failed)
        except Exception as error:  # noqa: BLE001 - a hook must not prevent the recovery of the circuits
            self._stop_errors[job] = _text(error)

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Call ``rebuild``, ``restore`` and ``resume``; the result is later in :meth:`finished`."""
        number = self._latest[job] = self._latest.get(job, 0) + 1
        if self._in_background:
            threading.Thread(
                target=self._run, args=(number, job, tuple(members)), name=f"lumion-hooks-{job}", daemon=True
            ).start()
        else:
            self._run(number, job, members)

    def _run(self, number: int, job: str, members: Sequence[str]) -> None:
        failure = self._stop_errors.pop(job, "")
        try:
            for call in (self._hooks.rebuild, self._hooks.restore, self._hooks.resume):
                if not failure and self._latest[job] == number:
                    call(job, members)
        except Exception as error:  # noqa: BLE001 - reported by the manager
            failure = _text(error)
        self._finished.put((number, job, failure))

    def finished(self) -> list[tuple[str, str]]:
        """Return the jobs whose hooks have ended since the last call, and the failure or an empty string."""
        results: list[tuple[str, str]] = []
        while not self._finished.empty():
            number, job, failure = self._finished.get()
            if self._latest[job] == number:  # otherwise a further server of the job has failed meanwhile
                results.append((job, failure))
        return results


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, LumionError) else f"{type(error).__name__}: {error}"
