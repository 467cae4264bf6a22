"""Run ``lumion`` as ``python -m lumion_hw.cli``."""

import sys

from lumion_hw.cli import main

if __name__ == "__main__":
    sys.exit(main())
