"""The wire protocol between a host and a LUMION mesh controller, version 1, without I/O.

Frames (:mod:`~firmware_protocol.frames`), one typed class per message (:mod:`~firmware_protocol.messages`,
:mod:`~firmware_protocol.config`, :mod:`~firmware_protocol.stream_messages`), the sweep image
(:mod:`~firmware_protocol.sweep`), the tables that define them (:mod:`~firmware_protocol.codes`,
:mod:`~firmware_protocol.layouts`) and the rules for both sides (:mod:`~firmware_protocol.rules`,
:mod:`~firmware_protocol.sequence`, :mod:`~firmware_protocol.streams`, :mod:`~firmware_protocol.records`). No module
uses a clock, a thread or a port. Section numbers are those of ``docs/protocol.md``. The modules are private: import
from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
