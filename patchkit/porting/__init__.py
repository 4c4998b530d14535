"""Patches carried to another release: the engine, pure.

Values in, values out: trees come as :class:`.model.Tree`, results go as
:class:`.model.Ported`.  Fetching releases and writing patches is not done here.
"""
