"""What stands before a launch: run, sync, and the guard at interpreter start.

Beside the core, which knows only that something was launched (:mod:`patchkit.launches`).
"""
