"""Trials: one measured run of a command under a bundle set, and what was learned.

A package beside the core: ``record``, ``metrics``, ``statistics``, ``board``, ``revisit`` and
``again`` are its pure part; the ledger, the running of commands and what is written for people
are its own I/O.
"""
