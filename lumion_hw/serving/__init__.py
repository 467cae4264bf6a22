"""A bench that several people and programs use: its owner, the lease, PV Access, page and metrics."""
