"""What a job does when its fabric changes: nothing, or what a program of its own does."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol

from lumion_hw.errors import ConfigError

_TIMEOUT_S = 600.0


class JobHooks(Protocol):
    """What a job does when its fabric changes. ``stop`` orders and returns; the others wait until it is done."""

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Order the survivors out of the old group."""

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        """Form the new group: the spare has the rank of the lost member."""

    def restore(self, job: str, members: Sequence[str]) -> None:
        """Give the spare the state of a peer."""

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Go on."""


class NoHooks:
    """For fabrics whose jobs look after themselves."""

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Do nothing."""

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        """Do nothing."""

    def restore(self, job: str, members: Sequence[str]) -> None:
        """Do nothing."""

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Do nothing."""


class CommandHooks:
    """Calls a program with what is to be done: ``PROGRAM … stop|rebuild|restore|go JOB MEMBER…``.

    ``stop`` has the failed member as its last argument, and is not waited for until ``rebuild``.

    Args:
        argv: Program and arguments; no shell.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)
        self._stopping: subprocess.Popen[bytes] | None = None

    def stop(self, job: str, members: Sequence[str], failed: str) -> None:
        """Order the survivors out of the old group; goes on at once."""
        self._stopping = self._begun("stop", job, [*members, failed])

    def rebuild(self, job: str, members: Sequence[str]) -> None:
        """Form the new group.

        Raises:
            ConfigError: The program fails, or takes ten minutes.
        """
        if self._stopping is not None:
            self._wait(self._stopping, "stop")
            self._stopping = None
        self._do("rebuild", job, members)

    def restore(self, job: str, members: Sequence[str]) -> None:
        """Give the spare the state of a peer. Raises as :meth:`rebuild`."""
        self._do("restore", job, members)

    def resume(self, job: str, members: Sequence[str]) -> None:
        """Go on. Raises as :meth:`rebuild`."""
        self._do("go", job, members)

    def _do(self, what: str, job: str, members: Sequence[str]) -> None:
        self._wait(self._begun(what, job, members), what)

    def _begun(self, what: str, job: str, members: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen([*self._argv, what, job, *members], stdin=subprocess.DEVNULL)
        except OSError as error:
            raise ConfigError(f"the job hook {self._argv[0]} cannot be run: {error.strerror}") from error

    def _wait(self, program: subprocess.Popen[bytes], what: str) -> None:
        try:
            code = program.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            program.kill()
            raise ConfigError(f"the job hook {self._argv[0]} {what} took longer than {_TIMEOUT_S:.0f} s") from None
        if code:
            raise ConfigError(f"the job hook {self._argv[0]} {what} ended with {code}")
