"""``python -m lumion_hw.cli`` is ``lumion``."""

import sys

from lumion_hw.cli import main

if __name__ == "__main__":
    sys.exit(main())
