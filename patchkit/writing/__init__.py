"""What is written into a bundle directory: manifests with their comments and layout kept, the
heads of patch files, and both with their lock as one change.

``port`` and the commands of authoring write through this, and through nothing else.
"""
