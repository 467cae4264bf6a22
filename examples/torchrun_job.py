"""A job of torchrun that goes on with a spare: `torchrun --standalone --nproc-per-node 2 examples/torchrun_job.py`.

Each server runs this command, spares too, with LUMION_COORDINATOR=HOST:PORT and LUMION_SERVER=NAME (docs/recovery.md).
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from lumion_hw.integrations import run_member


def build(servers, per_server):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    mesh = init_device_mesh("cpu", (servers, per_server), mesh_dim_names=("servers", "shards"))
    fully_shard(model, mesh=mesh)  # every server has a complete copy, its ranks have a part of it each
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(model, optimizer, step):
    data = torch.Generator().manual_seed(1000 * step + dist.get_rank())  # no random state that a spare would not have
    x = torch.randn(32, 64, generator=data)
    loss = torch.nn.functional.mse_loss(model(x), x[:, :8].cumsum(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


torch.set_num_threads(1)
run_member(build, train_step)
