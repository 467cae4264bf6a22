"""An emulated bench in a separate process, which always ends together with this process."""

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
_POLL_PERIOD_S = 0.02
_END_S = 10.0
_MAX_OUTPUT_CHARS = 1000


@dataclass(frozen=True)
class EmulatorProcess:
    """A running process of ``lumion emulate``.

    Attributes:
        endpoints: File with the addresses of the devices; exists when the devices are ready.
        output: File with the error output of the process.
    """

    process: subprocess.Popen[bytes]
    endpoints: Path
    output: Path

    def addresses(self) -> dict[str, str]:
        """Wait until the emulator serves its devices, and return their addresses by device name.

        Raises:
            LumionError: The emulator did not start; the message includes its output.
        """
        end_s = time.monotonic() + _START_S
        while not self.endpoints.exists():
            code = self.process.poll()
            if code is not None:
                raise LumionError(f"the emulator did not start: {self._last_output() or f'exit code {code}'}")
            if time.monotonic() > end_s:
                raise LumionError(f"the emulator did not start within {_START_S:g} s")
            time.sleep(_POLL_PERIOD_S)
        return read_endpoints(str(self.endpoints))

    def failure(self) -> LumionError | None:
        """Return an error that explains why the emulator ended, or ``None`` while the emulator runs."""
        code = self.process.poll()
        if code is None:
            return None
        reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        output = self._last_output()
        return LumionError(
            f"the emulator (process {self.process.pid}) {reason}{output and f': {output}'}",
            hint="The emulated bench is lost. Start it again; the state directory still lists the lost circuits.",
        )

    def _last_output(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace").strip()[-_MAX_OUTPUT_CHARS:]


@contextlib.contextmanager
def emulator_process(file: str, seed: int, joined: str | None = None) -> Iterator[EmulatorProcess]:
    """Run ``lumion emulate`` in a separate process while the ``with`` block runs.

    The emulator ends with this process, even if this process is killed.

    Args:
        file: Path of a bench file, or the name of a built-in bench.
        seed: Random seed.
        joined: File of joined meshes, if the mesh has fibres to others.

    Yields:
        The process, which may still be starting.
    """
    command = [sys.executable, "-m", "lumion_hw.cli", "emulate", file, "--seed", str(seed), "--tcp-only"]
    command += [] if joined is None else ["--joined", joined]
    with tempfile.TemporaryDirectory(prefix="lumion-") as directory:
        endpoints, output = Path(directory) / "endpoints.json", Path(directory) / "output"
        with output.open("wb") as stderr:
            process = subprocess.Popen(
                [*command, "--while-stdin", "--endpoints", str(endpoints)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            yield EmulatorProcess(process, endpoints, output)
        finally:
            if not endpoints.exists():  # it was never used
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
