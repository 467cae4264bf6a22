"""An emulated bench in a process of its own, which ends with this one, however this one ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lumion_hw.cli.common.opening import read_endpoints
from lumion_hw.errors import LumionError

_START_S = 120.0
_LOOK_S = 0.02
_END_S = 10.0
_MOST_WORDS = 1000


@dataclass(frozen=True)
class EmulatorProcess:
    """An emulated bench in a process.

    Attributes:
        process: The process.
        endpoints: File with the addresses of its devices, once it serves them.
        said: File with what it has said.
    """

    process: subprocess.Popen[bytes]
    endpoints: Path
    said: Path

    def addresses(self) -> dict[str, str]:
        """Wait until it serves; return the addresses of its devices by name.

        Raises:
            LumionError: It did not start; the message is its own.
        """
        end_s = time.monotonic() + _START_S
        while not self.endpoints.exists():
            code = self.process.poll()
            if code is not None:
                raise LumionError(f"the emulator did not start: {self._words() or f'exit code {code}'}")
            if time.monotonic() > end_s:
                raise LumionError(f"the emulator did not start within {_START_S:g} s")
            time.sleep(_LOOK_S)
        return read_endpoints(str(self.endpoints))

    def failure(self) -> LumionError | None:
        """Return why it has ended, with its last words; ``None`` while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"has ended with exit code {code}"
        words = self._words()
        return LumionError(
            f"the emulator, process {self.process.pid}, {how}{words and f': {words}'}",
            hint="Nothing is left of the emulated bench: serve it again. What was connected is in the state directory.",
        )

    def _words(self) -> str:
        """Return the end of what it has said."""
        return self.said.read_text(encoding="utf-8", errors="replace").strip()[-_MOST_WORDS:]


@contextlib.contextmanager
def emulator_process(file: str, seed: int) -> Iterator[EmulatorProcess]:
    """Run ``lumion emulate`` for the time of a block; while it starts, something else may be done.

    It has a core of its own, as devices have, and takes no turns with threads of this process. It ends when its
    standard input does: that is a pipe of this process, which the system closes when this one is killed. Ctrl-C at the
    terminal does not reach it: heaters are to be switched off first.

    Args:
        file: The bench file, or the name of a built-in bench.
        seed: Seed of everything random.

    Yields:
        The process, which has just begun.
    """
    command = [sys.executable, "-m", "lumion_hw.cli", "emulate", file, "--seed", str(seed), "--tcp-only"]
    with tempfile.TemporaryDirectory(prefix="lumion-") as directory:
        endpoints, said = Path(directory) / "endpoints.json", Path(directory) / "said"
        with said.open("wb") as told:
            process = subprocess.Popen(
                [*command, "--while-stdin", "--endpoints", str(endpoints)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=told,
                start_new_session=True,
            )
        try:
            yield EmulatorProcess(process, endpoints, said)
        finally:
            if not endpoints.exists():  # nothing was done with it
                process.kill()
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
