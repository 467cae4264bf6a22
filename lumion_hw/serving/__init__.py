"""A bench that several people and programs use: its owner, the lease, PV Access.

:class:`BenchOwner` owns a bench and publishes :class:`ServedState`; :class:`PvaServer` serves it. Programs elsewhere
use :meth:`lumion_hw.Bench.attach`. The modules inside are private: users import from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.serving.lease import Caller, LeaseBook
    from lumion_hw.serving.owner import BenchOwner, Subscription
    from lumion_hw.serving.pva import PvaServer
    from lumion_hw.serving.state import (
        AlarmSeverity,
        MarginSample,
        Point,
        ServedCircuit,
        ServedEvent,
        ServedHealth,
        ServedJob,
        ServedLease,
        ServedMesh,
        ServedPath,
        ServedRecovery,
        ServedState,
    )

__all__ = [
    "AlarmSeverity",
    "BenchOwner",
    "Caller",
    "LeaseBook",
    "MarginSample",
    "Point",
    "PvaServer",
    "ServedCircuit",
    "ServedEvent",
    "ServedHealth",
    "ServedJob",
    "ServedLease",
    "ServedMesh",
    "ServedPath",
    "ServedRecovery",
    "ServedState",
    "Subscription",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "lease": ("Caller", "LeaseBook"),
            "owner": ("BenchOwner", "Subscription"),
            "pva": ("PvaServer",),
            "state": (
                "AlarmSeverity",
                "MarginSample",
                "Point",
                "ServedCircuit",
                "ServedEvent",
                "ServedHealth",
                "ServedJob",
                "ServedLease",
                "ServedMesh",
                "ServedPath",
                "ServedRecovery",
                "ServedState",
            ),
        },
    )
