"""Coverage-guided fuzzing of everything that is read: ``python3 dev.py fuzz``.

Owns the targets, their seeds (made from the test data when they run) and the driver.  What
was found and mended is kept as ordinary tests beside the module that was wrong.
"""
