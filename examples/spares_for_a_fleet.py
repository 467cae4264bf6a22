"""Calculate how many spare accelerators 64 racks need, and compare policies. No bench is needed.

Run: python examples/spares_for_a_fleet.py
"""

from __future__ import annotations

from lumion_hw.planning import MIXES, Faults, Fleet, on_cores, plan_spares, rack_of_servers, simulate

FAULTS_PER_DAY, REPAIR_DAYS, SERVER_SHARE = (
    4.7e-4,
    7.0,
    0.36,
)  # Llama-3: faults per accelerator and day; 36 % are not GPU faults


def main() -> None:
    """Plan spares, then compare with other policies."""
    faults = Faults.from_rate(FAULTS_PER_DAY, REPAIR_DAYS, SERVER_SHARE, per_server=4)
    rack = rack_of_servers(16, 4, faults.accelerator_unavailable, faults.server_unavailable)
    plan = plan_spares(rack, 64, 0.95, "sufficient")
    print(f"{plan.every_rack} spares in each of {plan.racks} racks, or {plan.pooled} in one pool")
    fleet = Fleet(racks=64, per_rack=64, per_server=4, spares_per_rack=4)
    comparison = simulate(fleet, faults, MIXES["tpu-v4-small"], states=2000, mapper=on_cores())
    for cost in comparison.costs.values():
        print(f"{cost.policy}: {cost.stranded:.1f} healthy accelerators out of service, {cost.idle:.1f} idle spares")


if __name__ == "__main__":
    main()
