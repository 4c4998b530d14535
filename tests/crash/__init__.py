"""Kills, errors of the system and power cuts at every call on a tree, on the real releases.

:mod:`~tests.crash.tracer` stops a command before chosen system calls, :mod:`~tests.crash.disk`
has the state of the disk as a value, :mod:`~tests.crash.subjects` the tools behind one interface;
:mod:`~tests.crash.kills`, :mod:`~tests.crash.errors` and :mod:`~tests.crash.power` attack, and
:mod:`~tests.crash.sweep` makes the table.  ``python3 dev.py crashes`` runs the whole, the tests a
part.  :mod:`tests.faults` has signals, commands beside each other, and installers.
"""
