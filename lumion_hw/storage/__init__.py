"""What is known of a bench, as files: calibration records, the arrays beside them, journals. Nothing below opens one.

Private: users import ``load_record`` and ``save_record`` from :mod:`lumion_hw`.
"""

from lumion_hw.storage.record_files import load_record, save_record

__all__ = ["load_record", "save_record"]
