"""The pristine bytes of any release, installed or not.

Owns where they come from (the user's own package client, a folder of archives, a git
checkout, the installed files) and the cache that keeps what was asked for.  The core does
not know this package; porting, authoring and the matrix stand on it.
"""
