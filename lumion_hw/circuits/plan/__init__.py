"""Planning of circuits: choose paths and heater currents, calculate link budgets, explain the result or the refusal.

Nothing here touches a device. :func:`~lumion_hw.circuits.plan.planner.plan_circuits` is the entry. This package is
private: import names from :mod:`lumion_hw.circuits`.
"""
