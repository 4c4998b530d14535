"""Names of distributions as they are compared."""

from __future__ import annotations


def normalise(name: str) -> str:
    """The normalised form of a project name (PEP 503).

    >>> normalise("FlashInfer__Python")
    'flashinfer-python'
    """
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name
