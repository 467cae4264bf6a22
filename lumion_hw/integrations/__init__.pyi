from .ophyd_devices import BenchDevice as BenchDevice, BenchDevices as BenchDevices, to_ophyd as to_ophyd
from .qcodes_station import BenchInstrument as BenchInstrument, to_qcodes as to_qcodes
from .torchrun import run_member as run_member
