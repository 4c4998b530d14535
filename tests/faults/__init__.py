"""Kills and errors at every call that changes the file system, on the real releases.

:mod:`~tests.faults.subjects` has patchkit, ``git apply`` and quilt behind one interface,
:mod:`~tests.faults.sweep` the attacks and the table.  ``python3 dev.py faults`` runs the
whole, the tests a part.
"""
