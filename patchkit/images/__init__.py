"""Build contexts for container images: ``bake``.

Beside the core.  ``context`` gathers what belongs into one, ``dockerfile`` is text to text,
``packing`` makes a wheel of the running patchkit, ``output`` knows the folder.  Nothing here
runs an engine.
"""
