from .alignment import (
    EXPECTED_NOISE_DB as EXPECTED_NOISE_DB,
    Aligner as Aligner,
    Alignment as Alignment,
    ReadPower as ReadPower,
    Tracking as Tracking,
)
from .tracking import TrackState as TrackState
