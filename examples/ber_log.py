"""Log the bit error ratio (BER) before error correction for ten minutes and plot the log (docs/cookbook/ber.md)."""

import matplotlib.pyplot as plt

from lumion_hw import Bench
from lumion_hw.interfaces import Quality

LIMIT = 1.25e-2  # largest BER that the error correction of 400ZR can correct
rows = []  # time in s, mean, minimum and maximum BER of each interval
with Bench.emulate("noise_loaded_bench.yaml") as bench:  # on hardware: Bench.open("my-bench.yaml")
    sender, receiver = bench.transponders["zr-a"], bench.transponders["zr-b"]
    for module in (sender, receiver):
        module.power_up()
        module.select_application(1)  # 400ZR
        module.tune(193.7)
        module.enable()
    print(receiver.wait_for_lock(120.0).detail)
    receiver.performance()  # ends the interval that began before the link was up
    start_s = bench.clock.now()
    while (elapsed_s := bench.clock.now() - start_s) < 600.0:
        if 300.0 < elapsed_s < 330.0:
            sender.set_tx_power_dbm(-12.5)  # emulates an ageing transmitter; leave this out on hardware
        bench.clock.sleep(30.0)
        performance = receiver.performance()
        ber, osnr = performance.quantities["prefec_ber"], performance.quantities["osnr"]
        if ber.average.quality is not Quality.OK:
            print(f"{elapsed_s:5.0f} s  no BER: {receiver.lock_state().detail}")
            continue
        rows.append((performance.interval_end_s - start_s, ber.average.value, ber.minimum.value, ber.maximum.value))
        print(f"{rows[-1][0]:5.0f} s  BER {ber.average.value:.2e}  OSNR {osnr.best.value:.1f} dB", *performance.remarks)

time_s, mean, lowest, highest = zip(*rows, strict=True)
plt.fill_between(time_s, lowest, highest, alpha=0.3, label="lowest to highest in an interval")
plt.semilogy(time_s, mean, label="mean of an interval")
plt.axhline(LIMIT, color="red", label="limit of the error correction")
plt.xlabel("time (s)")
plt.ylabel("BER before correction")
plt.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
plt.savefig("ber_log.png", bbox_inches="tight")
print(f"highest BER {max(highest):.2e}, {LIMIT / max(highest):.1f} times below the limit")
