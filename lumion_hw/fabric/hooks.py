"""Hooks: actions of a job when its circuits or servers change."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol

from lumion_hw.errors import ConfigError

_TIMEOUT_S = 600.0


class JobHooks(Protocol):
    """Actions of a job when its circuits or servers change. All methods except ``stop`` wait until done."""

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

    The last argument of ``stop`` is the failed server or accelerator.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)
        self._stopping: subprocess.Popen[bytes] | None = None

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Order the surviving members of a job to leave their communication group, without waiting."""
        self._stopping = self._start("stop", job, [*members, failed])

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        """Make the job form a new communication group that includes the spare.

        Raises:
            ConfigError: The program fails, or takes more than ten minutes.
        """
        # The members leave their group while circuits are switched; only the new group has to wait for them.
        if self._stopping is not None:
            self._wait(self._stopping, "stop")
            self._stopping = None
        self._call("rebuild", job, members)

    def restore(self, job: str, members: Sequence[str]) -> None:
        """Copy the training state from another member of the job to the spare. Raises the errors of :meth:`rebuild`."""
        self._call("restore", job, members)

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Continue the job after a recovery. Raises the errors of :meth:`rebuild`."""
        self._call("go", job, members)

    def _call(self, event: str, job: str, members: Sequence[str]) -> None:
        self._wait(self._start(event, job, members), event)

    def _start(self, event: str, job: str, members: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen([*self._argv, event, job, *members], stdin=subprocess.DEVNULL)
        except OSError as error:
            raise ConfigError(f"the job hook {self._argv[0]} cannot be run: {error.strerror}") from error

    def _wait(self, program: subprocess.Popen[bytes], event: str) -> None:
        try:
            code = program.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            program.kill()
            raise ConfigError(f"the job hook {self._argv[0]} {event} took longer than {_TIMEOUT_S:.0f} s") from None
        if code:
            raise ConfigError(f"the job hook {self._argv[0]} {event} ended with exit code {code}")
