"""Ranks of a training job that survive the replacement of a server, and the coordinator's view of them.

A rank is a process of the job. It forms communication groups on the coordinator's orders, reports its progress, and
keeps the state of its last steps, so that a group with a spare continues where the old one was interrupted.
The modules of this package are private.
"""
