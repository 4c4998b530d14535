"""Trials: one measured run of a command under a bundle set, and what was learned.

A package beside the core: ``record``, ``metrics`` and ``statistics`` are its pure part; the
ledger and the running of commands are its own I/O.
"""
