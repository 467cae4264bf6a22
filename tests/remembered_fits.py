"""Fits of the light that several tests make of the very same readings are computed once.

A search from the same readings goes the same way, and most tests of circuits and of calibration begin with the same
one: the sources of the small bench. What is remembered is one improvement of the members by the readings, under all the
numbers it depends on, bit for bit; a test that reads anything else computes anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import fields

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.polarization.state_fit import LightEnsemble, Members

_MOST = 4000
"""Improvements kept, some 10 kB each."""


def remember_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every ensemble of this process remember, until the patch is undone."""
    improve = LightEnsemble._optimise
    known: OrderedDict[bytes, Members] = OrderedDict()
    guard = threading.Lock()  # searches side by side

    def remembered(ensemble: LightEnsemble, index: NDArray[np.int64], steps: int, *, fine: bool) -> None:
        key = _key(ensemble, index, steps, fine)
        with guard:
            found = known.get(key)
        if found is None:
            improve(ensemble, index, steps, fine=fine)
            found = ensemble._members.subset(index)
        ensemble._members.replace(index, found)
        with guard:
            known[key] = found
            known.move_to_end(key)
            if len(known) > _MOST:
                known.popitem(last=False)

    monkeypatch.setattr(LightEnsemble, "_optimise", remembered)


def _key(ensemble: LightEnsemble, index: NDArray[np.int64], steps: int, fine: bool) -> bytes:
    members = ensemble._members.subset(index)
    arrays = [getattr(members, field.name) for field in fields(members)]
    arrays += [ensemble._draws[index], ensemble._phases, ensemble._powers]
    numbers = (ensemble._relative_noise, ensemble._dark_noise, ensemble._ln_p0, steps, fine)
    shapes = repr([array.shape for array in arrays])
    return b"".join(
        [repr(numbers).encode(), shapes.encode(), *(np.ascontiguousarray(array).tobytes() for array in arrays)]
    )
