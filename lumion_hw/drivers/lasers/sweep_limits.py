"""Sweeps of lasers compared with their limits: refused, never clipped."""

from __future__ import annotations

from lumion_hw.drivers.ranges import check_range
from lumion_hw.interfaces import LaserSweep
from lumion_hw.sessions.conversation import Conversation


def check_sweep(plan: LaserSweep, low_high_nm: tuple[float, float], session: Conversation) -> None:
    """Compare a sweep with the range of the laser. Raises ``LimitError``; nothing was changed."""
    check_range("start of the sweep", plan.start_nm, low_high_nm, "nm", session)
    check_range("end of the sweep", plan.stop_nm, (plan.start_nm, low_high_nm[1]), "nm", session)
    span_nm = plan.stop_nm - plan.start_nm
    check_range("span of the sweep", span_nm, (1e-4, low_high_nm[1] - low_high_nm[0]), "nm", session)
    check_range("step of the sweep", plan.step_nm, (1e-5, span_nm), "nm", session)
    check_range("speed of the sweep", plan.speed_nm_per_s, (1e-6, 1e6), "nm/s", session)
