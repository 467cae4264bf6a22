"""The training of one rank in torch.distributed with gloo: groups that can be left, state that can be given away."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from lumion_hw.errors import ConfigError, DeviceError

Build = Callable[[int, int], tuple[Any, Any]]
"""Builds the model and optimizer in a new group; called with the number of servers and of ranks per server."""
TrainStep = Callable[[Any, Any, int], None]
"""Trains one step; called with the model, the optimizer and the number of finished steps."""
_NO_STATE = 1 << 30
_TIMEOUT_S = 10.0
"""Time limit of a collective operation; a backstop, because the coordinator ends a group earlier."""
_KEPT_S = 3 * _TIMEOUT_S
"""Time for which the process groups of a former group are kept; all operations have ended by then, or hang."""


class TorchJob:
    """A job of torch.distributed, in the default process group, which is replaced with every generation.

    The model may be replicated, or sharded over the ranks of each server: then a server holds a complete state. The
    state of the last two steps is kept, because the ranks of an interrupted group differ by at most one step.

    Args:
        build: Builds model and optimizer. It must give the same initial state in every call.
        train_step: Trains one step, reproducibly for given ``step`` and rank.

    Attributes:
        step: Number of finished training steps.
    """

    def __init__(self, build: Build, train_step: TrainStep) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._dist: Any = importlib.import_module("torch.distributed")
        self._build, self._train_step = build, train_step
        self._group: _Group | None = None
        self._guard = threading.Lock()
        self.step = 0
        self._states: deque[tuple[int, Any]] = deque(maxlen=2)

    def warm_up(self) -> None:
        """Do the first training step alone, for its caches and imports, and forget it."""
        group = self._group = _Group(0, 1, 1)
        group.open(self._dist.HashStore)
        group.build(self._build)
        group.unpack(group.packed(with_optimizer=True))
        self._train_step(group.model, group.optimizer, 0)
        self.leave()

    def reset(self) -> None:
        """Return to the initial state."""
        self.step = 0
        self._states.clear()

    def join(self, order: Mapping[str, Any]) -> None:
        """Form the communication group of an order, and build the model in it."""
        host, port = order["store"]
        limit = timedelta(seconds=_TIMEOUT_S)

        def connect() -> Any:
            store = self._dist.TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False)
            # Keys of an earlier generation would poison the new group.
            return self._dist.PrefixStore(f"g{order['generation']}", store)

        group = _Group(int(order["rank"]), int(order["world"]), int(order["per_server"]))
        with self._guard:
            self._group = group
        group.open(connect)
        group.build(self._build)

    def agree(self, is_new: bool) -> None:
        """Exchange the last finished steps of all ranks; ``is_new`` ranks have no state."""
        group = self._joined()
        if is_new:
            with self._changing_state(group):
                self.reset()
        mine = _NO_STATE if is_new else self.step
        gathered = [self._torch.zeros(1, dtype=self._torch.int64) for _ in range(group.world)]
        self._dist.all_gather(gathered, self._torch.tensor([mine]), group=group.all_ranks)
        group.steps = [int(step) for step in gathered]

    def restore(self) -> None:
        """Return to the first step that a rank has not finished, and give the state to new ranks.

        Raises:
            DeviceError: The state of that step is lost.
        """
        group = self._joined()
        known = [step for step in group.steps if step != _NO_STATE]
        step, states = min(known, default=0), deque[tuple[int, Any]](maxlen=2)
        if step > 0:
            if group.is_new:
                state = group.packed(with_optimizer=True)
            else:
                state = next((state for number, state in self._states if number == step), None)
                if state is None:
                    raise DeviceError(f"the state of step {step} is lost; the last two steps are kept")
            group.exchange(state)
            group.unpack(state)
            states.append((step, state))
        with self._changing_state(group):
            self._states, self.step = states, step

    def train_step(self) -> None:
        """Train one step, and keep the state after it."""
        group = self._joined()
        self._train_step(group.model, group.optimizer, self.step)
        state = group.packed()
        with self._changing_state(group):
            self.step += 1
            self._states.append((self.step, state))

    def finish(self) -> str:
        """Wait for all ranks, and return the SHA-256 of this rank's state."""
        group = self._joined()
        digest = hashlib.sha256(group.packed().numpy().tobytes()).hexdigest()
        # No rank leaves before all have the last step.
        self._dist.all_reduce(self._torch.zeros(1), group=group.all_ranks)
        return digest

    def cut(self) -> None:
        """Close the connections of the group from another thread; waiting calls raise an error."""
        group = self._group  # another thread may leave it meanwhile
        if group is not None:
            group.cut()

    def leave(self) -> None:
        """Release the group. Does not wait for an operation that hangs."""
        with self._guard:
            group, self._group = self._group, None
        if group is not None:
            group.cut()
            group.release()

    @contextlib.contextmanager
    def _changing_state(self, group: _Group) -> Iterator[None]:
        # A thread whose operation hung may go on after the next group was formed.
        with self._guard:
            if self._group is not group:
                raise DeviceError("another group was formed in the meantime")
            yield

    def _joined(self) -> _Group:
        if self._group is None:
            raise DeviceError("this rank was ordered to leave its group")
        return self._group


class _Group:
    """A generation of the default process group, with the model built in it."""

    def __init__(self, rank: int, world: int, per_server: int) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._dist: Any = importlib.import_module("torch.distributed")
        self.rank, self.world, self.per_server = rank, world, per_server
        self.steps: Sequence[int] = ()
        self.model: Any = None
        self.optimizer: Any = None
        self.all_ranks: Any = None
        self._before = set(open_sockets())
        self._own: set[str] | None = None

    def open(self, connect: Callable[[], Any]) -> None:
        """Form the group with the store that ``connect`` returns."""
        limit = timedelta(seconds=_TIMEOUT_S)
        # A group that could not be formed leaves its number behind, and the number is part of the keys in the store.
        self._dist.distributed_c10d._world.group_count = 0
        self._dist.init_process_group("gloo", store=connect(), rank=self.rank, world_size=self.world, timeout=limit)
        self.all_ranks = self._dist.group.WORLD

    @property
    def is_new(self) -> bool:
        """Whether this rank has no state."""
        return self.steps[self.rank] == _NO_STATE

    def build(self, build: Build) -> None:
        """Build the model and optimizer in this group."""
        self.model, self.optimizer = build(self.world // self.per_server, self.per_server)
        # From here on, connections that the training step opens to other places are not this group's.
        self._own = open_sockets().keys() - self._before

    # -- state --------------------------------------------------------------------------------------------------------

    def packed(self, *, with_optimizer: bool = False) -> Any:
        """Return the state of this rank as one flat tensor of bytes.

        Args:
            with_optimizer: Create the state of the optimizer first if it does not exist, as before the first step.
        """
        if with_optimizer and not self.optimizer.state:
            self._create_optimizer_state()
        return self._torch.cat([tensor.reshape(-1).view(self._torch.uint8) for tensor in self._tensors()])

    def unpack(self, state: Any) -> None:
        """Overwrite the state of this rank."""
        if not self.optimizer.state:
            self._create_optimizer_state()
        tensors = self._tensors()
        parts = self._torch.split(state, [tensor.numel() * tensor.element_size() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.clone().view(tensor.dtype).reshape(tensor.shape))

    def _tensors(self) -> list[Any]:
        found = [*self.model.parameters(), *self.model.buffers()]
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                for key, value in sorted(self.optimizer.state.get(parameter, {}).items()):
                    if not self._torch.is_tensor(value):
                        raise ConfigError(f"the optimizer's state {key!r} is no tensor, so it cannot be copied")
                    found.append(value)
        local = [tensor.detach() for tensor in found]
        return [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in local]

    def _create_optimizer_state(self) -> None:
        """Create the optimizer's state by a step without gradients; its values are overwritten."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
            for parameter in group["params"]:
                parameter.grad = self._torch.zeros_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def exchange(self, state: Any) -> None:
        """Give ``state`` to each new rank from the rank with the same index on the first server that has it."""
        for rank in (number for number, step in enumerate(self.steps) if step == _NO_STATE):
            sources = range(rank % self.per_server, self.world, self.per_server)
            source = next((number for number in sources if self.steps[number] != _NO_STATE), None)
            if source is None:
                raise DeviceError(f"no server is left that has the state of rank {rank}")
            if self.rank == source:
                self._dist.send(state, rank, group=self.all_ranks)
            elif self.rank == rank:
                self._dist.recv(state, source, group=self.all_ranks)

    # -- the end ------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Shut down the group's connections, which ends waiting operations.

        A group that is being formed may open further connections: repeat the call until its operations have ended.
        """
        sockets = open_sockets()
        for name in sockets.keys() - self._before if self._own is None else sockets.keys() & self._own:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(sockets[name])) as connection:
                # If the listening socket is shut down, the other ranks do not wake (torch 2.13).
                if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    connection.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Release the model, and the process groups once all their operations have ended."""
        groups = list(self._dist.distributed_c10d._world.pg_map)
        self.model = self.optimizer = None
        with contextlib.suppress(Exception):  # after a cut, an error here means nothing
            self._dist.destroy_process_group()
        # The destructor of a group waits for its operations. If a model is the last object that refers to the group,
        # all Python threads wait, too, and an operation that needs one of them never ends (torch 2.13).
        keeping = threading.Timer(_KEPT_S, groups.clear)
        keeping.daemon = True
        keeping.start()


def open_sockets() -> dict[str, int]:
    """Return the file descriptors of this process that are sockets.

    The keys are the kernel's names of the sockets: a descriptor is used again when its socket is closed.
    """
    sockets = dict[str, int]()
    for handle in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{handle}")
            if name.startswith("socket:"):
                sockets[name] = int(handle)
    return sockets
