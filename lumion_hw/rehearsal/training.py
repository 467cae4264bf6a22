"""The training jobs of a rehearsal: small models that train reproducibly bit for bit."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import DeviceError
from lumion_hw.training.member import RankJob
from lumion_hw.training.torch_job import Build, TorchJob, TrainStep

Floats = NDArray[np.float32]
_CHUNK = 16384
_MAX_MESSAGES_IN_FLIGHT = 4  # messages in flight: a full link loses further messages, as a wire does
_HEAD = struct.Struct("<III")  # generation, message number, length


class Model(Protocol):
    """A model with one flat buffer of parameters."""

    params: Floats

    def gradient(self, step: int, rank: int) -> Floats:
        """Return the gradient of the loss for the batch of a step and rank."""


class Trainer:
    """Adam optimiser of a model (Kingma and Ba, arXiv 1412.6980), with a snapshot of the step before."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.state: Floats = np.zeros(3 * model.params.size, dtype=np.float32)
        self.state[: model.params.size] = model.params
        model.params = self.state[: model.params.size]
        self.initial_state: Floats = self.state.copy()
        self._snapshot: Floats = self.state.copy()
        self.step = 0

    def restart(self) -> None:
        """Return the model and optimiser to their initial state."""
        self.state[:] = self._snapshot[:] = self.initial_state
        self.step = 0

    def roll_back(self, step: int) -> None:
        """Return to a training step at most one step ago. Raises ``DeviceError`` if ``step`` is earlier."""
        if step == self.step - 1:
            self.state[:] = self._snapshot
            self.step = step
        elif step != self.step:
            raise DeviceError(f"the ranks are at steps {step} and {self.step}, but a snapshot is only one step old")

    def train_step(self, group: Group) -> None:
        """Train one step, with gradients summed over the group."""
        n = self.model.params.size
        gradient = self.model.gradient(self.step, group.rank)
        total = group.sum(gradient) / np.float32(group.world)
        self._snapshot[:] = self.state
        first, second = self.state[n : 2 * n], self.state[2 * n :]
        first *= np.float32(0.9)
        first += np.float32(0.1) * total
        second *= np.float32(0.95)
        second += np.float32(0.05) * total * total
        t = self.step + 1
        rate = np.float32(1e-3 * (1.0 - 0.95**t) ** 0.5 / (1.0 - 0.9**t))
        self.state[:n] -= rate * first / (np.sqrt(second) + np.float32(1e-8))
        self.step = t


class Group(Protocol):
    """A group of ranks that communicate. Every rank must make the same calls in the same order."""

    rank: int
    world: int

    def sum(self, values: Floats) -> Floats:
        """Return the sum of ``values`` over all ranks of the group."""

    def gather(self, number: int) -> list[int]:
        """Return one number per rank, in rank order."""

    def broadcast(self, values: Floats, source: int) -> None:
        """Overwrite ``values`` of every rank by the values of one rank."""

    def cut(self) -> None:
        """Close all connections of the group; waiting calls raise an error."""


# -- a job in numpy ---------------------------------------------------------------------------------------------------


class NumpyModel:
    """A two-layer perceptron that learns a fixed random function; ``seed`` determines parameters and data."""

    _N_IN, _N_HIDDEN, _N_OUT, _BATCH = 64, 256, 32, 64

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._seed = seed
        self._target = rng.standard_normal((self._N_IN, self._N_OUT)).astype(np.float32)
        size = self._N_IN * self._N_HIDDEN + self._N_HIDDEN * self._N_OUT
        self.params: Floats = (0.1 * rng.standard_normal(size)).astype(np.float32)

    def gradient(self, step: int, rank: int) -> Floats:
        """Return the gradient of the squared error for the batch of a step and rank."""
        split = self._N_IN * self._N_HIDDEN
        inner = self.params[:split].reshape(self._N_IN, self._N_HIDDEN)
        outer = self.params[split:].reshape(self._N_HIDDEN, self._N_OUT)
        rng = np.random.default_rng((self._seed, step, rank))
        x = rng.standard_normal((self._BATCH, self._N_IN), dtype=np.float32)
        hidden = np.tanh(x @ inner)
        error = (hidden @ outer - x @ self._target) / np.float32(self._BATCH)
        back = (error @ outer.T) * (1.0 - hidden * hidden)
        return np.concatenate([(x.T @ back).ravel(), (hidden.T @ error).ravel()]).astype(np.float32)


class RingGroup:
    """Ranks in a ring, each linked to the next one over TCP or by messages of a socket pair.

    Args:
        world: Number of ranks.
        generation: Number of the group; messages of earlier groups are discarded.
        link: Socket for messages; ``None`` for TCP.
        addresses: Address of every rank, for TCP.
        port: TCP port of this group.
        timeout_s: Time limit of every operation.
        early: Messages that arrived before they were expected.
    """

    def __init__(
        self,
        rank: int,
        world: int,
        generation: int,
        link: socket.socket | None,
        addresses: Sequence[str] = (),
        port: int = 0,
        timeout_s: float = 10.0,
        early: list[bytes] | None = None,
    ) -> None:
        self.rank, self.world = rank, world
        self._early = [] if early is None else early
        self._generation, self._deadline_s = generation, time.monotonic() + 3600.0
        self._timeout_s, self._is_cut = timeout_s, threading.Event()
        self._sent = self._received = 0
        self._link = link
        self._before: socket.socket | None = None
        self._next: socket.socket | None = None
        if link is None:
            self._join(addresses, port)

    def _join(self, addresses: Sequence[str], port: int) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        with socket.create_server((addresses[self.rank], port)) as server:
            server.settimeout(0.05)
            while self._before is None or self._next is None:
                if time.monotonic() > deadline_s or self._is_cut.is_set():
                    raise DeviceError("the ranks could not connect to each other")
                if self._next is None:
                    with contextlib.suppress(OSError):
                        self._next = socket.create_connection((addresses[(self.rank + 1) % self.world], port), 0.2)
                        self._next.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        self._next.settimeout(self._timeout_s)
                if self._before is None:
                    with contextlib.suppress(TimeoutError):
                        self._before = server.accept()[0]
                        self._before.settimeout(self._timeout_s)

    def _exchange(self, data: bytes) -> bytes:
        """Send data to the next rank and return data of the previous rank; both have the same length."""
        return self._exchange_messages(self._link, data) if self._link is not None else self._exchange_streams(data)

    def _exchange_messages(self, link: socket.socket, data: bytes) -> bytes:
        deadline_s, parts = time.monotonic() + self._timeout_s, dict[int, bytes]()
        chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)] or [b""]
        first, self._sent = self._sent, self._sent + len(chunks)
        waiting = list(range(len(chunks)))
        # A rank can be ahead of its successor by this number for every other rank of the ring.
        in_flight = max(1, _MAX_MESSAGES_IN_FLIGHT // (self.world - 1))
        link.settimeout(0.01)
        early, self._early[:] = list(self._early), []
        while waiting or len(parts) < len(chunks):
            if self._is_cut.is_set() or time.monotonic() > deadline_s:
                raise DeviceError("the connections of the communication group were cut")
            if waiting and len(waiting) > len(chunks) - len(parts) - in_flight:
                number = waiting[0]
                # The other end of a busy computer reads late; this rank receives meanwhile.
                with contextlib.suppress(TimeoutError):
                    link.send(_HEAD.pack(self._generation, first + number, len(chunks[number])) + chunks[number])
                    waiting.pop(0)
                    continue
            with contextlib.suppress(TimeoutError):
                message = early.pop(0) if early else link.recv(2 * _CHUNK)
                generation, number, _ = _HEAD.unpack_from(message)
                if generation == self._generation and first <= number < first + len(chunks):
                    parts[number - first] = message[_HEAD.size :]
                elif (generation, number) > (self._generation, first):  # needed later by this rank
                    self._early.append(message)
        self._early += early
        return b"".join(parts[number] for number in range(len(chunks)))

    def _exchange_streams(self, data: bytes) -> bytes:
        before, following = self._before, self._next
        if before is None or following is None:
            raise RuntimeError("this rank has not joined the ring")
        failed: list[BaseException] = []

        def send() -> None:
            try:
                following.sendall(data)
            except OSError as error:
                failed.append(error)

        # All ranks send at the same time: without a second thread they would wait for each other with full buffers.
        sender = threading.Thread(target=send)
        sender.start()
        received = bytearray()
        while len(received) < len(data):
            part = before.recv(min(len(data) - len(received), 1 << 20))
            if not part:
                raise DeviceError("the previous rank has closed its connection")
            received += part
        sender.join()
        if failed:
            raise DeviceError(f"the next rank has closed its connection: {failed[0]}")
        return bytes(received)

    def _all_gather(self, data: bytes) -> list[bytes]:
        """Exchange data with all ranks and return one item per rank, in rank order."""
        parts, passed = {self.rank: data}, data
        for hop in range(1, self.world):
            passed = self._exchange(passed)
            parts[(self.rank - hop) % self.world] = passed
        return [parts[rank] for rank in range(self.world)]

    def sum(self, values: Floats) -> Floats:
        """Return the sum over all ranks, added in rank order."""
        # The result of a sum of floats depends on the order, and all ranks must end with the same parameters.
        parts = [np.frombuffer(part, dtype=np.float32) for part in self._all_gather(values.tobytes())]
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        return total

    def gather(self, number: int) -> list[int]:
        """Return one number per rank, in rank order."""
        return [int.from_bytes(part, "little") for part in self._all_gather(number.to_bytes(8, "little"))]

    def broadcast(self, values: Floats, source: int) -> None:
        """Overwrite ``values`` of every rank by the values of one rank."""
        values[:] = np.frombuffer(self._all_gather(values.tobytes())[source], dtype=np.float32)

    def cut(self) -> None:
        """Close all connections of the group."""
        self._is_cut.set()
        for end in (self._before, self._next):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


class RingJob:
    """The numpy job of one rank.

    Args:
        seed: Random seed of the model.
        link: Socket for messages; ``None`` if data go over TCP.
    """

    _NO_STATE = 1 << 30

    def __init__(self, seed: int, link: socket.socket | None) -> None:
        self._trainer, self._link = Trainer(NumpyModel(seed)), link
        self._early: list[bytes] = []
        self._group: RingGroup | None = None
        self._steps: list[int] = []
        self._is_new = False

    @property
    def step(self) -> int:
        """Number of finished training steps."""
        return self._trainer.step

    def warm_up(self) -> None:
        """Calculate a gradient, for caches and allocators."""
        self._trainer.model.gradient(0, 0)

    def reset(self) -> None:
        """Return to the initial state."""
        self._trainer.restart()

    def join(self, order: Mapping[str, Any]) -> None:
        """Form the ring of an order."""
        rank, world, generation = int(order["rank"]), int(order["world"]), int(order["generation"])
        port = 20000 + generation % 20000
        self._group = RingGroup(rank, world, generation, self._link, order["addresses"], port, early=self._early)

    def agree(self, is_new: bool) -> None:
        """Exchange the last finished steps of all ranks; ``is_new`` ranks have no state."""
        self._is_new = is_new
        self._steps = self._joined().gather(self._NO_STATE if is_new else self.step)

    def restore(self) -> None:
        """Return to the first step that a rank has not finished, and give the state to new ranks."""
        trainer = self._trainer
        known = [step for step in self._steps if step != self._NO_STATE]
        if known and len(known) < len(self._steps):
            if not self._is_new:
                trainer.roll_back(min(known))
            self._joined().broadcast(trainer.state, self._steps.index(known[0]))
            trainer.step = min(known)

    def train_step(self) -> None:
        """Train one step."""
        self._trainer.train_step(self._joined())

    def finish(self) -> str:
        """Wait for all ranks, and return the SHA-256 of this rank's state."""
        digest = hashlib.sha256(self._trainer.state.tobytes()).hexdigest()
        self._joined().gather(0)  # no rank leaves before all have the last step
        return digest

    def cut(self) -> None:
        """Close the connections of the ring from another thread."""
        if self._group is not None:
            self._group.cut()

    def leave(self) -> None:
        """Release the ring."""
        self.cut()
        self._group = None

    def _joined(self) -> RingGroup:
        if self._group is None:
            raise DeviceError("this rank was ordered to leave its ring")
        return self._group


# -- a job in torch ---------------------------------------------------------------------------------------------------


def llama(seed: int, *, is_sharded: bool) -> tuple[Build, TrainStep]:
    """Return how to build and to train a small Llama-style model with 0.35 M parameters.

    Args:
        seed: Random seed of parameters and data.
        is_sharded: Shard parameters and optimizer over the ranks of a server (FSDP2); otherwise each rank has all.
    """
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model_type = _llama_model_type()

    def build(servers: int, per_server: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        model = model_type()
        if is_sharded:
            fsdp: Any = importlib.import_module("torch.distributed.fsdp")
            meshes: Any = importlib.import_module("torch.distributed.device_mesh")
            mesh = meshes.init_device_mesh("cpu", (servers, per_server), mesh_dim_names=("servers", "shards"))
            for layer in model.layers:
                fsdp.fully_shard(layer, mesh=mesh)
            fsdp.fully_shard(model, mesh=mesh)
        else:
            parallel: Any = importlib.import_module("torch.nn.parallel")
            # Otherwise the first step of a group adds gradients in another order than later steps do.
            model = parallel.DistributedDataParallel(model, find_unused_parameters=True)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train_step(model: Any, optimizer: Any, step: int) -> None:
        rng = np.random.default_rng((seed, step, dist.get_rank()))
        tokens = torch.from_numpy(rng.integers(0, _VOCABULARY, (_BATCH, _LENGTH + 1)))
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return build, train_step


_VOCABULARY, _WIDTH, _DEPTH, _HEADS, _LENGTH, _BATCH, _HIDDEN = 256, 96, 2, 4, 24, 2, 256


def _llama_model_type() -> Any:
    torch: Any = importlib.import_module("torch")
    nn, functional = torch.nn, torch.nn.functional
    module_type: Any = nn.Module
    size = _WIDTH // _HEADS
    angle = torch.outer(torch.arange(_LENGTH), 10000.0 ** (-torch.arange(0, size, 2) / size))
    cos, sin = torch.cos(angle), torch.sin(angle)

    def rotated(x: Any) -> Any:
        real, imaginary = x[..., 0::2], x[..., 1::2]
        return torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1).flatten(-2)

    class Layer(module_type):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = nn.RMSNorm(_WIDTH), nn.RMSNorm(_WIDTH)
            self.qkv, self.out = nn.Linear(_WIDTH, 3 * _WIDTH, bias=False), nn.Linear(_WIDTH, _WIDTH, bias=False)
            self.gate = nn.Linear(_WIDTH, 2 * _HIDDEN, bias=False)
            self.down = nn.Linear(_HIDDEN, _WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, _HEADS, size)).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            up, gated = self.gate(self.norm2(x)).chunk(2, -1)
            return x + self.down(functional.silu(gated) * up)

    class Llama(module_type):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(_DEPTH))
            self.norm, self.head = nn.RMSNorm(_WIDTH), nn.Linear(_WIDTH, _VOCABULARY, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    return Llama


def create_job(job: str, seed: int, link: socket.socket | None) -> RankJob:
    """Return the job of one rank: ``torch``, ``sharded`` (torch) or ``numpy``."""
    return RingJob(seed, link) if job == "numpy" else TorchJob(*llama(seed, is_sharded=job == "sharded"))
