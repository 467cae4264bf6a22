"""Joined benches that other processes serve, each with its server and its emulator."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lumion_hw.joined import load_joined
from tests.waiting import PATIENCE_S, Bound


@dataclass
class ServedBenches:
    """The servers of a folder with a file ``joined.yaml``.

    Attributes:
        options: Further options of ``lumion serve``, by bench.
    """

    folder: Path
    seed: int
    not_for_ever: Bound
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Serve all benches."""
        names = list(load_joined(self.folder / "joined.yaml").benches)
        for name in names:
            self.start(name)
        for name in names:
            self.await_start(name)
        try:
            yield self
        finally:
            for process in self.processes.values():
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a frozen process cannot end
            for process in self.processes.values():
                process.communicate(timeout=PATIENCE_S)

    def start(self, name: str) -> None:
        """Start the server of one bench."""
        port = re.search(r"([0-9]+)$", self.address(name))
        assert port is not None
        command = [
            sys.executable,
            "-m",
            "lumion_hw.cli",
            "serve",
            f"{name}.yaml",
            "--emulate",
            "--seed",
            str(self.seed),
        ]
        command += ["--record", f"{name}.json", "--state", f"state-{name}", "--no-fabric", "--json"]
        command += ["--pva", "--pva-port", port[1], "--joined", "joined.yaml", *self.options.get(name, ())]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.not_for_ever(process)
        self.processes[name] = process

    def address(self, name: str) -> str:
        """Return the address of a server."""
        return str(load_joined(self.folder / "joined.yaml").benches[name].address)

    def await_start(self, name: str) -> None:
        """Wait until a server is ready."""
        output = self.processes[name].stdout
        assert output is not None
        assert json.loads(output.readline())["bench"] == name

    def kill(self, name: str) -> None:
        """Kill a server; its emulator ends with it."""
        self.processes[name].kill()
        self.processes[name].communicate(timeout=PATIENCE_S)

    def lumion(self, *arguments: str, operator: str | None = "operator") -> subprocess.CompletedProcess[str]:
        """Run a command of ``lumion joined`` with the file and the state directory of an operator."""
        return self.run(command_of(operator, *arguments))

    def begin(self, operator: str | None, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command of ``lumion joined`` of an operator."""
        command = command_of(operator, *arguments)
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.not_for_ever(process)
        return process

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ``lumion`` in the folder."""
        return self.run([sys.executable, "-m", "lumion_hw.cli", *arguments])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder."""
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def circuits(self, operator: str | None = "operator") -> set[str]:
        """Return the circuits, which must be complete; no change of the operator may be unfinished."""
        document = json.loads(self.lumion("status", "--json", operator=operator).stdout)
        assert document["unfinished"] is None
        assert not any(circuit["problems"] for circuit in document["circuits"]), document
        return {circuit["circuit"] for circuit in document["circuits"]}


def command_of(operator: str | None, verb: str, *arguments: str) -> list[str]:
    """Return a command of ``lumion joined``; each operator has a state directory, ``None`` uses the default one."""
    command = [sys.executable, "-m", "lumion_hw.cli", "joined", verb, "joined.yaml"]
    return [*command, *arguments, *([] if operator is None else ["--state", f"state-{operator}"])]


def with_free_ports(text: str) -> str:
    """Return a file with free ports in place of its own, all replaced at once."""
    numbers = re.findall(r"127\.0\.0\.1:([0-9]+)", text) + re.findall(r"emulated_port: ([0-9]+)", text)
    ports = dict(zip(numbers, map(str, free_ports(len(numbers))), strict=True))
    return re.sub(r"\b[0-9]+\b", lambda number: ports.get(number[0], number[0]), text)


def free_ports(count: int) -> list[int]:
    """Return ports that neither TCP nor UDP uses at the moment."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
