"""One job after the loss of a process: with a spare by lumion, restarted by torchrun, and with torchft.

Run: .venv/bin/python benchmarks/restarts.py [trials]

The job is the data-parallel Llama-style model of `lumion rehearse` on two servers with one process each, over the
loopback interface. A process is killed. Columns: lumion connects a spare whose processes wait (the change of circuits
is a pause of 10 ms); torchrun restarts both processes from a checkpoint of every tenth step; torchft (extra package)
goes on without the lost process, whose launcher restarts it. All are measured in turn, in the same run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.pop(0)  # this folder has a module of the same name as the package calibration
sys.path.insert(0, str(Path(__file__).parents[1]))

KILL_AT, CHECKPOINT_EVERY, STEPS = 26, 10, 100_000
SWITCH_S = 0.010
_LIMIT_S = 120.0


# -- the processes ----------------------------------------------------------------------------------------------------


def note(step: int, world: int) -> None:
    """Write down that this process has finished a step."""
    name = os.environ["RESTART_LOG"] + f".{os.getpid()}"
    with Path(name).open("a", encoding="ascii") as log:
        log.write(json.dumps({"s": time.time(), "pid": os.getpid(), "step": step, "world": world}) + "\n")


def lumion_worker() -> None:
    from lumion_hw.integrations import run_member
    from lumion_hw.rehearsal.training import llama

    build, train = llama(0, is_sharded=False)

    def train_step(model: Any, optimizer: Any, step: int) -> None:
        train(model, optimizer, step)
        note(step + 1, 2)

    run_member(build, train_step)


def torchrun_worker() -> None:
    import torch
    import torch.distributed as dist

    from lumion_hw.rehearsal.training import llama

    build, train = llama(0, is_sharded=False)
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    model, optimizer = build(2, 1)
    step, path = 0, Path(os.environ["RESTART_LOG"] + ".checkpoint")
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    while step < STEPS:
        train(model, optimizer, step)
        step += 1
        note(step, 2)
        if step % CHECKPOINT_EVERY == 0 and dist.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, f"{path}.new")
            Path(f"{path}.new").replace(path)


def torchft_worker() -> None:
    import torch
    import torchft

    from lumion_hw.rehearsal import training

    torch.set_num_threads(1)
    torch.manual_seed(0)
    inner = training._llama_model_type()()
    adam = torch.optim.AdamW(inner.parameters(), lr=1e-3)

    def load(state: Any) -> None:
        inner.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": inner.state_dict(), "optimizer": adam.state_dict()},
        min_replica_size=1,
        replica_id=os.environ["REPLICA"],
        timeout=timedelta(seconds=10),
    )
    optimizer = torchft.Optimizer(manager, adam)
    while manager.current_step() < STEPS:
        step = manager.current_step()
        optimizer.zero_grad()
        data = torch.Generator().manual_seed(1000 * step + int(os.environ["REPLICA"]))
        tokens = torch.randint(0, training._VOCABULARY, (training._BATCH, training._LENGTH + 1), generator=data)
        logits = inner(tokens[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        # Not torchft.DistributedDataParallel: its hook ends the survivor in some trials (torchft 0.2, torch 2.13).
        gradients = [parameter.grad for parameter in inner.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        manager.allreduce(flat).wait()
        for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))
        optimizer.step()
        note(manager.current_step(), manager.num_participants())


WORKERS = {"lumion": lumion_worker, "torchrun": torchrun_worker, "torchft": torchft_worker}


# -- the columns ------------------------------------------------------------------------------------------------------


class Run:
    """Programs of one trial, and what their processes have written down."""

    def __init__(self, kind: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self._kind, self._log, self._stack = kind, folder / "log", stack
        self.folder = folder

    def start(self, *argv: str, out: str = "out", **variables: str) -> subprocess.Popen[bytes]:
        """Start a program, which ends with the trial."""
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "RESTART_LOG": str(self._log),
            **variables,
        }
        with (self.folder / out).open("ab") as file:
            program = subprocess.Popen(argv, env=environment, stdout=file, stderr=file, start_new_session=True)
        self._stack.callback(_end, program)
        return program

    def torchrun(self, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start an agent of torchrun with one process."""
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", *words]
        return self.start(*launch, __file__, "worker", self._kind, **variables)

    def steps(self) -> list[dict[str, Any]]:
        """Return all finished steps, in order of time."""
        lines = [
            line
            for path in self._log.parent.glob(f"{self._log.name}.*")
            if path.suffix[1:].isdecimal()
            for line in path.read_text(encoding="ascii").splitlines()
        ]
        return sorted((json.loads(line) for line in lines), key=lambda each: float(each["s"]))

    def wait(self, found: Callable[[], Any]) -> Any:
        """Wait until a function returns something."""
        deadline_s = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(json.JSONDecodeError):  # a line that is being written
                if result := found():
                    return result
            time.sleep(0.005)
        log = (self.folder / "out").read_text(errors="replace")
        raise RuntimeError(f"{self._kind}: no progress; its output ends with {log[-2000:]}")

    def kill_one(self, agent: subprocess.Popen[bytes]) -> tuple[float, int, set[int]]:
        """Kill the process of an agent; return the instant, the last finished step and the processes before it."""

        def is_under_way() -> bool:
            return len({each["pid"] for each in self.steps() if each["step"] >= KILL_AT and each["world"] == 2}) == 2

        self.wait(is_under_way)
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text(encoding="ascii").split()
        at_s = time.time()
        os.kill(int(children[0]), signal.SIGKILL)
        before = [each for each in self.steps() if each["s"] <= at_s]
        return at_s, max(each["step"] for each in before), {each["pid"] for each in before}


def _end(program: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGTERM)
    try:
        program.wait(10.0)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def lumion(run: Run) -> tuple[float, float, int]:
    """Put in a spare; return the ms to the first step and to a new step of both processes, and the lost steps."""
    from lumion_hw.fabric.hooks import CommandHooks

    address = f"127.0.0.1:{free_port()}"
    module = [sys.executable, "-m", "lumion_hw.integrations.torchrun"]
    run.start(*module, "coordinate", address, "a", "b", "--steps", str(STEPS), out="events")

    def events(event: str, **details: Any) -> list[dict[str, Any]]:
        lines = (run.folder / "events").read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [each for each in found if each["event"] == event and details.items() <= each.items()]

    run.wait(lambda: events("waiting"))
    agents = {
        server: run.torchrun("--standalone", LUMION_COORDINATOR=address, LUMION_SERVER=server) for server in "abc"
    }
    run.wait(lambda: len(events("joined")) == 3)
    at_s, last, _ = run.kill_one(agents["b"])
    run.wait(lambda: events("gone"))
    with contextlib.closing(CommandHooks([*module, "hook", address], 60.0)) as hooks:
        hooks.stop("job", ["a", "b"], "b")
        time.sleep(SWITCH_S)
        hooks.rebuild("job", ["a", "c"])
        first = run.wait(lambda: events("first_step", generation=2))[0]
    restored = events("state_restored", generation=2)[0]["step"]
    first_ms = 1e3 * (first["s"] - at_s)
    return first_ms, first_ms, max(0, last - restored)


def torchrun(run: Run) -> tuple[float, float, int]:
    """Let torchrun restart both processes."""
    words = ["--nnodes", "2", "--max-restarts", "3", "--rdzv-backend", "c10d"]
    words += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "job"]
    # Otherwise keys of the killed group stay in the store that the agents share with the processes.
    agents = [run.torchrun(*words, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") for _ in range(2)]
    at_s, last, before = run.kill_one(agents[1])

    def new() -> list[dict[str, Any]]:
        first: dict[int, dict[str, Any]] = {}
        for each in run.steps():
            if each["pid"] not in before:
                first.setdefault(each["pid"], each)
        return list(first.values()) if len(first) == 2 else []

    found = run.wait(new)
    beyond = run.wait(lambda: [each for each in run.steps() if each["pid"] not in before and each["step"] > last])[0]
    first_ms = 1e3 * (max(each["s"] for each in found) - at_s)
    return first_ms, 1e3 * (beyond["s"] - at_s), last - min(each["step"] for each in found) + 1


def torchft(run: Run) -> tuple[float, float, int]:
    """Let torchft go on with one process, and the other one join again."""
    port = free_port()
    lighthouse = str(Path(sys.executable).parent / "torchft_lighthouse")
    run.start(lighthouse, "--bind", f"127.0.0.1:{port}", "--min_replicas", "1", "--join_timeout_ms", "1000")
    variables = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    words = ["--standalone", "--max-restarts", "3"]
    agents = [run.torchrun(*words, REPLICA=str(number), **variables) for number in (0, 1)]
    at_s, last, before = run.kill_one(agents[1])

    def new() -> list[dict[str, Any]]:
        return [each for each in run.steps() if each["s"] > at_s and (each["pid"] not in before or each["world"] == 1)]

    # The survivor goes on alone when the lighthouse misses the heartbeats of the other, unless that is back before.
    first = run.wait(lambda: [each for each in new() if each["step"] > last])[0]
    both = run.wait(lambda: [each for each in new() if each["step"] > last and each["world"] == 2])[0]
    has_survived = any(each["pid"] in before for each in run.steps() if each["s"] > first["s"])
    return 1e3 * (first["s"] - at_s), 1e3 * (both["s"] - at_s), 0 if has_survived else last


COLUMNS: dict[str, tuple[str, Callable[[Run], tuple[float, float, int]]]] = {
    "lumion": ("lumion, spare", lumion),
    "torchrun": ("torchrun, restart from a checkpoint", torchrun),
    "torchft": ("torchft without lumion", torchft),
}


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        yield Run(kind, Path(folder), stack)


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        WORKERS[sys.argv[2]]()
        return
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    results: dict[str, list[tuple[float, float, int]]] = {kind: [] for kind in COLUMNS}
    for _ in range(trials):
        for kind, (_, column) in COLUMNS.items():
            if importlib.util.find_spec("torchft") or kind != "torchft":
                with opened(kind) as run:
                    results[kind].append(column(run))
    print(f"ms after a process was killed, medians (least, most) of {trials}; load {os.getloadavg()[0]:.1f}\n")
    print("| | first step | first new step of two processes | steps lost |\n|---|---|---|---|")
    for kind, (title, _) in COLUMNS.items():
        if not results[kind]:
            print(f"| {title} | not measured: torchft is not installed | | |")
            continue
        first, both, lost = zip(*results[kind], strict=True)
        cells = [f"{statistics.median(each):.0f} ({min(each):.0f}, {max(each):.0f})" for each in (first, both)]
        print(f"| {title} | {' | '.join(cells)} | {min(lost)} to {max(lost)} |")


if __name__ == "__main__":
    main()
