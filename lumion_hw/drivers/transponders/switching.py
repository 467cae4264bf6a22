"""What happens to transmitters that could not be switched on: they are switched off again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lumion_hw.clock import Clock
from lumion_hw.errors import LinkError, LumionError

SWITCH_BACK_S = 2.0
"""Time in s for which switching off is attempted while the module does not respond."""
_ATTEMPT_PERIOD_S = 0.05


@contextmanager
def dark_after_failure(
    clock: Clock, switch_off: Callable[[], None], *, unless: tuple[type[LumionError], ...] = ()
) -> Iterator[None]:
    """Call ``switch_off`` if the ``with`` block ends with any exception, including Ctrl-C.

    If the transmitters cannot be switched off either, the exception gets a note that says so.

    Args:
        clock: Clock for the attempts.
        switch_off: Function that switches off the transmitters that were off before.
        unless: Exceptions after which the transmitters stay as they are.
    """
    try:
        yield
    except unless:
        raise
    except BaseException as error:
        deadline = clock.now() + SWITCH_BACK_S
        while True:
            try:
                switch_off()
            except LumionError as further:
                if isinstance(further, LinkError) and clock.now() < deadline:
                    clock.sleep(_ATTEMPT_PERIOD_S)
                    continue
                error.add_note(f"The transmitter may be on, because it could not be switched off again: {further}")
            break
        raise
