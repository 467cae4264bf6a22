"""The training job of a rehearsal: a small model and an optimiser, reproducible bit for bit."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import DeviceError

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
        link.settimeout(0.01)
        early, self._early[:] = list(self._early), []
        while len(parts) < len(chunks):
            if self._is_cut.is_set() or time.monotonic() > deadline_s:
                raise DeviceError("the connections of the communication group were cut")
            if waiting and len(waiting) > len(chunks) - len(parts) - _MAX_MESSAGES_IN_FLIGHT:
                number = waiting.pop(0)
                link.send(_HEAD.pack(self._generation, first + number, len(chunks[number])) + chunks[number])
                continue
            with contextlib.suppress(TimeoutError):
                message = early.pop(0) if early else link.recv(2 * _CHUNK)
                generation, number, _ = _HEAD.unpack_from(message)
                if generation == self._generation and first <= number < first + len(chunks):
                    parts[number - first] = message[_HEAD.size :]
                elif (generation, number) > (self._generation, first):  # needed later by this rank
                    self._early.append(message)
        self._early += early
        for number in waiting:
            link.send(_HEAD.pack(self._generation, first + number, len(chunks[number])) + chunks[number])
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


# -- a job in torch ---------------------------------------------------------------------------------------------------


def llama(seed: int) -> Model:
    """Return a small Llama-like model with 0.35 M parameters."""
    torch: Any = importlib.import_module("torch")
    functional = torch.nn.functional
    vocabulary, width, depth, heads, length, batch = 256, 96, 2, 4, 24, 2
    hidden = 256
    shapes: list[tuple[int, ...]] = [(vocabulary, width)]
    for _ in range(depth):
        shapes += [(width,), (3 * width, width), (width, width), (width,), (2 * hidden, width), (width, hidden)]
    shapes += [(width,), (vocabulary, width)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    rng = np.random.default_rng(seed)
    start = np.concatenate([
        np.ones(size) if len(shape) == 1 else 0.05 * rng.standard_normal(size)
        for shape, size in zip(shapes, sizes, strict=True)
    ]).astype(np.float32)  # fmt: skip
    angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, width // heads, 2) / (width // heads)))
    cos, sin = torch.cos(angle), torch.sin(angle)

    def rotated(x: Any) -> Any:
        real, imaginary = x[..., 0::2], x[..., 1::2]
        return torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1).flatten(-2)

    class Llama:
        params: Floats = start

        def gradient(self, step: int, rank: int) -> Floats:
            """Return the gradient of the loss of predicting the next token."""
            tokens = np.random.default_rng((seed, step, rank)).integers(0, vocabulary, (batch, length + 1))
            data = torch.from_numpy(tokens)
            flat = torch.from_numpy(self.params.copy()).requires_grad_()
            parts = [part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True)]
            x = functional.embedding(data[:, :-1], parts[0])
            for layer in range(depth):
                norm, qkv, out, norm2, gate, down = parts[1 + 6 * layer : 7 + 6 * layer]
                q, k, v = (
                    functional.linear(functional.rms_norm(x, (width,), norm), qkv)
                    .view(batch, length, 3, heads, -1)
                    .unbind(2)
                )
                q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
                mixed = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
                x = x + functional.linear(mixed.transpose(1, 2).reshape(batch, length, width), out)
                up, gated = functional.linear(functional.rms_norm(x, (width,), norm2), gate).chunk(2, -1)
                x = x + functional.linear(functional.silu(gated) * up, down)
            logits = functional.linear(functional.rms_norm(x, (width,), parts[-2]), parts[-1])
            loss = functional.cross_entropy(logits.reshape(-1, vocabulary), data[:, 1:].reshape(-1))
            (gradient,) = torch.autograd.grad(loss, flat)
            result: Floats = gradient.numpy()
            return result

    return Llama()


class GlooGroup:
    """Ranks of a gloo group of torch.distributed.

    A collective operation may hang when its connections are shut down (torch 2.13); it is then abandoned.

    Args:
        world: Number of ranks.
        generation: Number of the group.
        store: Address and port of the store of the supervisor.
        timeout_s: Time limit of every collective.
    """

    def __init__(self, rank: int, world: int, generation: int, store: tuple[str, int], timeout_s: float = 10.0) -> None:
        from datetime import timedelta

        self._dist: Any = importlib.import_module("torch.distributed")
        self.rank, self.world = rank, world
        self._waits_for = threading.Event()
        self._is_cut = False
        limit = timedelta(seconds=timeout_s)
        before = _sockets()
        shared = self._dist.TCPStore(store[0], store[1], is_master=False, timeout=limit, wait_for_workers=False)
        prefixed = self._dist.PrefixStore(f"g{generation}", shared)
        self._gloo = self._dist.ProcessGroupGloo(prefixed, rank, world, limit)
        self._own = _sockets() - before

    def sum(self, values: Floats) -> Floats:
        """Return the sum of ``values`` over all ranks of the group."""
        torch: Any = importlib.import_module("torch")
        total = torch.from_numpy(values.copy())
        self._wait(self._gloo.allreduce([total]))
        result: Floats = total.numpy()
        return result

    def gather(self, number: int) -> list[int]:
        """Return one number per rank, in rank order."""
        torch: Any = importlib.import_module("torch")
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        self._wait(self._gloo.allgather([counts], [torch.tensor([number])]))
        return [int(index) for index in counts]

    def broadcast(self, values: Floats, source: int) -> None:
        """Overwrite ``values`` of every rank by the values of one rank."""
        torch: Any = importlib.import_module("torch")
        # An abandoned collective must not write into the state of the job.
        arriving = torch.from_numpy(values.copy())
        options = self._dist.BroadcastOptions()
        options.rootRank = source
        self._wait(self._gloo.broadcast([arriving], options))
        values[:] = arriving.numpy()

    def _wait(self, work: Any) -> None:
        """Wait for a collective operation, or until the connections are shut down."""
        has_ended = threading.Event()  # a separate event, because abandoned collectives may end at any time
        self._waits_for = has_ended
        work.get_future().then(lambda _: has_ended.set())
        if not self._is_cut:
            has_ended.wait()
        if self._is_cut:
            raise DeviceError("the communication group was cut during a collective operation")
        work.wait()

    def cut(self) -> None:
        """Shut down the connections, which ends waiting operations."""
        for handle in self._own:
            with contextlib.suppress(OSError):
                copy = os.dup(handle)
                with socket.socket(fileno=copy) as connection:
                    # If the listening socket is shut down, the others do not wake (torch 2.13).
                    if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        connection.shutdown(socket.SHUT_RDWR)
        self._is_cut = True
        self._waits_for.set()

    def end(self) -> None:
        """Release the group after :meth:`cut`."""
        groups = [self._gloo]
        self._gloo = None
        threading.Thread(target=groups.clear, daemon=True).start()


def _sockets() -> set[int]:
    handles = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                handles.add(int(name))
    return handles


def create_model(job: str, seed: int) -> Model:
    """Return the model of a job, ``torch`` or ``numpy``."""
    if job == "numpy":
        return NumpyModel(seed)
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return llama(seed)


def create_group(order: Mapping[str, Any], link: socket.socket | None, early: list[bytes]) -> RingGroup | GlooGroup:
    """Return the communication group described by an order of the supervisor."""
    rank, world, generation = int(order["rank"]), int(order["world"]), int(order["generation"])
    if order["job"] == "torch":
        return GlooGroup(rank, world, generation, (str(order["store"][0]), int(order["store"][1])))
    return RingGroup(rank, world, generation, link, order["addresses"], 20000 + generation % 20000, early=early)
