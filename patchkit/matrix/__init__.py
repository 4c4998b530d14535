"""Bundles against releases: what each means for each, by the code and not by belief.

Owns which releases are looked at and the table of the outcome.  Stands on
:mod:`patchkit.releases`; the core does not know it.
"""
