"""``port``: a bundle's patches carried to other releases, proven, and written down.

Owns the way from a variant to contents and from ported contents back to patches, variant,
assertions and lock, and the working folder of a conflict.  The merge itself is
:mod:`patchkit.porting`'s.
"""
