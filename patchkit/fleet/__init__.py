"""Reports of many nodes, compared.

Beside the core: it reads what ``status --json`` printed on each node, and no environment.
``compare`` and ``page`` compute alone.
"""
