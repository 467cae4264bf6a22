"""A procedure of PyMeasure that sweeps a heater and reads a power meter: pip install 'lumion-hw[pymeasure]'.

Any PyMeasure window can run the class HeaterSweep. This script runs it without a window and prints the results.
"""

import tempfile
from pathlib import Path

import numpy as np
from pymeasure.experiment import FloatParameter, IntegerParameter, Parameter, Procedure, Results, Worker

from lumion_hw import Bench
from lumion_hw.acquisition import Settings


class HeaterSweep(Procedure):
    """Sweeps the current of one heater; a current beyond its limit ends the procedure before the sweep."""

    bench_file = Parameter("Bench file", default="small-bench")
    heater = IntegerParameter("Heater", minimum=0, default=3)
    stop_ma = FloatParameter("Largest current", units="mA", minimum=0.0, default=2.0)
    points = IntegerParameter("Points", minimum=2, maximum=10_000, default=11)
    channel = IntegerParameter("Meter channel", minimum=1, default=1)
    DATA_COLUMNS = ["Current (mA)", "Power (W)"]  # noqa: RUF012 - as PyMeasure wants it

    def startup(self) -> None:
        """Open the bench, and check all currents before the first is set."""
        self.bench = Bench.emulate(self.bench_file, seed=1)  # on hardware: Bench.open(self.bench_file)
        self.setting = Settings(self.bench)[f"mesh0.heater_ma.{self.heater}"]
        self.setting.check(self.stop_ma)

    def execute(self) -> None:
        """Set each current, wait until the light has settled, and read the power."""
        meter = self.bench.meters["meter0"]
        for number, current_ma in enumerate(np.linspace(0.0, self.stop_ma, self.points)):
            self.setting.write(float(current_ma))
            self.setting.wait_settled()
            self.emit("results", {"Current (mA)": current_ma, "Power (W)": meter.read(self.channel).power_w})
            self.emit("progress", 100.0 * (number + 1) / self.points)
            if self.should_stop():
                break

    def shutdown(self) -> None:
        """Close the bench, which switches the heaters off; also after an error."""
        if hasattr(self, "bench"):
            self.bench.close()


def run(procedure: Procedure) -> Results:
    """Run a procedure in a worker thread, and return its results."""
    results = Results(procedure, str(Path(tempfile.mkdtemp()) / "sweep.csv"))
    worker = Worker(results)
    worker.start()
    worker.join(60.0)
    return results


if __name__ == "__main__":
    print(run(HeaterSweep(points=5)).data)
