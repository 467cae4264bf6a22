"""Schedules: sequences of circuits for collectives, for phases of a job and for measured demand, and what they cost.

The modules inside are private: users import from here (docs/schedules.md).
"""
