"""Files of a bench: calibration records, their array files, and journals.

Users import ``load_record`` and ``save_record`` from :mod:`lumion_hw`.
"""

from lumion_hw.storage.record_files import load_record, save_record

__all__ = ["load_record", "save_record"]
