"""A wheel of the patchkit that runs here: for an image, which is to have the very same.

Owns the form of that wheel: the same files give the same bytes on every machine, so nothing is
compressed and no time is kept.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import zipfile
from email.parser import HeaderParser
from importlib import metadata

from patchkit.errors import Refused
from patchkit.fsio import walk_files

DISTRIBUTION = "patchkit-sets"
_STEM = "patchkit_sets"
#: The oldest time that a zip file knows.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_WHEEL = b"""\
Wheel-Version: 1.0
Generator: patchkit bake
Root-Is-Purelib: true
Tag: py3-none-any
"""


def own_wheel() -> tuple[str, bytes]:
    """File name and bytes.  Raises :class:`Refused` (``no-wheel``) where patchkit was not
    installed, but runs from a plain folder."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        dist = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        dist = None
    described = None if dist is None else dist.read_text("METADATA")
    if dist is None or described is None:
        raise Refused(
            f"the image needs patchkit, and {package} is no installed one to make a wheel of",
            code="no-wheel",
            hint=f"give a wheel of it (--wheel FILE), or what pip is to install there"
            f" (--requirement '{DISTRIBUTION}==VERSION')",
        )
    files = _package(package)
    info = f"{_STEM}-{dist.version}.dist-info"
    files[f"{info}/METADATA"] = described.encode()
    files[f"{info}/WHEEL"] = _WHEEL
    files[f"{info}/entry_points.txt"] = (dist.read_text("entry_points.txt") or "").encode()
    for name in HeaderParser().parsestr(described).get_all("License-File", []):
        text = dist.read_text(f"licenses/{name}")
        if text is not None:
            files[f"{info}/licenses/{name}"] = text.encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    return f"{_STEM}-{dist.version}-py3-none-any.whl", _zipped(files)


def _package(package: str) -> dict[str, bytes]:
    places = [("patchkit", package)]
    if not os.path.isdir(os.path.join(package, "_bundles")):
        # An editable install: the shipped bundles are those of the checkout.
        checkout = os.path.dirname(package)
        places += [
            (f"patchkit/_bundles/{name}", os.path.join(checkout, name))
            for name in ("manifests", "patches")
            if os.path.isdir(os.path.join(checkout, name))
        ]
    files = {}
    for prefix, folder in places:
        for path in walk_files(folder):
            if not path.endswith(".pyc"):
                with open(os.path.join(folder, path), "rb") as file:
                    files[f"{prefix}/{path}"] = file.read()
    return files


def _record(files: dict[str, bytes], own: str) -> bytes:
    rows = []
    for path, data in sorted(files.items()):
        value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={value},{len(data)}\n")
    return "".join([*rows, f"{own},,\n"]).encode()


def _zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            entry = zipfile.ZipInfo(path, _NO_TIME)
            entry.create_system = 3  # Unix, whatever runs this
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return out.getvalue()
