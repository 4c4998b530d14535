"""Facts of the machine and of the environment, and what they mean together.

``model`` and ``findings`` are pure.  The rest only looks: nothing of the environment is
imported or run but ``nvcc --version``, and what may hang is bounded.
"""
