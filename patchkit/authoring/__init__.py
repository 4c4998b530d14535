"""Bundles made from edits: captured, imported, substituted, or worked on as commits.

Beside the core, which does not know it.  What it writes is a bundle directory, and for
``capture`` a record of what is on the disk already.
"""
