"""Stands in for the build backend of a source distribution while pip downloads it.

pip asks a build backend for the metadata of each sdist, also for ``pip download
--no-deps``: that runs foreign code, and fails where the backend is gone from the index.
The question is answered here from PKG-INFO (PEP 643), so that the archive is saved and
nothing of it is run.  Python imports this module by its name when the folder is on
``PYTHONPATH``; it acts in the child that runs the hooks (PEP 517) and nowhere else.
"""

from __future__ import annotations

import json
import os
import sys


def answer(hook: str, control: str) -> None:
    """Write the answer to one hook, in the form of pyproject-hooks."""
    with open(os.path.join(control, "input.json"), encoding="utf-8") as file:
        asked = json.load(file)
    value: object = []
    if hook.startswith("prepare_metadata_for_build_"):
        folder = asked["kwargs"]["metadata_directory"]
        with open("PKG-INFO", "rb") as file:
            metadata = file.read()
        value = f"{_field(metadata, 'Name')}-{_field(metadata, 'Version')}.dist-info"
        os.makedirs(os.path.join(folder, value), exist_ok=True)
        with open(os.path.join(folder, value, "METADATA"), "wb") as file:
            file.write(metadata)
    with open(os.path.join(control, "output.json"), "w", encoding="utf-8") as file:
        json.dump({"return_val": value}, file)


def _field(metadata: bytes, name: str) -> str:
    for line in metadata.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(":")
        if not line or not colon:
            break
        if key.lower() == name.lower():
            return value.strip().replace("-", "_")
    return "unknown"


if len(sys.orig_argv) >= 4 and sys.orig_argv[-3].endswith("_in_process.py"):
    answer(sys.orig_argv[-2], sys.orig_argv[-1])
    os._exit(0)
