"""Servers joined by light: circuits between servers, detection of a lost one, and its replacement by a spare.

The modules inside are private: users import from here.
"""

from lumion_hw.fabric.detection import FailureVerdict, LightWatch
from lumion_hw.fabric.recovery import Recovery, Span, replace_server
from lumion_hw.fabric.servers import pair_requests, partners, substituted

__all__ = [
    "FailureVerdict",
    "LightWatch",
    "Recovery",
    "Span",
    "pair_requests",
    "partners",
    "replace_server",
    "substituted",
]
