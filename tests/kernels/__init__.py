"""Kernels that FlashInfer's JIT compiles, before and after a patch of their sources.

:mod:`~tests.kernels.rmsnorm` asks FlashInfer's own JIT for one kernel in a process of its
own, :mod:`~tests.kernels.compiler` is what the tests have in the place of nvcc, and
``python3 -m tests.kernels.table`` goes through the table of steps, on a GPU where there is
one.
"""
