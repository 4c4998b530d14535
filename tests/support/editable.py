"""A small project in a git checkout, installed as editable by real pip and real uv, offline.

Its build backend lies in its own tree (PEP 517, ``backend-path``), so that nothing has to be
downloaded; it makes the editable wheels that setuptools and hatchling make: a plain ``.pth``
file, or a finder module with its ``MAPPING`` (PEP 660).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tests.support import wheels
from tests.support.lab import Lab, Site, numbered, write_tree

EditableStyle = Literal["pth", "finder"]

_BACKEND = '''
import base64, hashlib, os, zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
STYLE = open(os.path.join(HERE, "style.txt")).read().strip()
PACKAGES = os.path.join(HERE, "python")
INFO = "gitted-1.0.dist-info"


def get_requires_for_build_editable(config_settings=None):
    return []


def get_requires_for_build_wheel(config_settings=None):
    return []


def _wheel(directory, files):
    name = "gitted-1.0-py3-none-any.whl"
    files[INFO + "/METADATA"] = "Metadata-Version: 2.1\\nName: gitted\\nVersion: 1.0\\n"
    files[INFO + "/WHEEL"] = (
        "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    )
    rows = []
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        for path, text in files.items():
            data = text.encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append("%s,sha256=%s,%d" % (path, digest, len(data)))
            archive.writestr(path, data)
        rows.append(INFO + "/RECORD,,")
        archive.writestr(INFO + "/RECORD", "\\n".join(rows) + "\\n")
    return name


FINDER = """
from __future__ import annotations
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.machinery import all_suffixes as module_suffixes
from importlib.util import spec_from_file_location
from itertools import chain
from pathlib import Path

MAPPING: dict[str, str] = {mapping!r}
NAMESPACES: dict[str, list[str]] = {{}}
PATH_PLACEHOLDER = '__editable__.gitted-1.0.finder' + ".__path_hook__"


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        for pkg, pkg_path in reversed(list(MAPPING.items())):
            if fullname == pkg:
                init = Path(pkg_path, "__init__.py")
                return spec_from_file_location(fullname, init)
        return None


def install():
    if not any(finder == _EditableFinder for finder in sys.meta_path):
        sys.meta_path.append(_EditableFinder)
"""


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    if STYLE == "pth":
        return _wheel(wheel_directory, {"_gitted.pth": PACKAGES + "\\n"})
    module = "__editable___gitted_1_0_finder"
    mapping = {"gitted": os.path.join(PACKAGES, "gitted")}
    return _wheel(
        wheel_directory,
        {
            "__editable__.gitted-1.0.pth": "import %s; %s.install()" % (module, module),
            module + ".py": FINDER.format(mapping=mapping),
        },
    )


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    raise NotImplementedError
'''

FILES = {
    "pyproject.toml": (
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n\n'
        '[project]\nname = "gitted"\nversion = "1.0"\n'
    ),
    "backend.py": _BACKEND,
    ".gitignore": "__pycache__/\n*.log\n",
    "README.md": "gitted\n",
    "python/gitted/__init__.py": '"""gitted."""\n',
    "python/gitted/core.py": numbered("first", "second", "third"),
    "python/gitted/sub/__init__.py": "",
    "python/gitted/sub/more.py": numbered("red", "green", "blue"),
    "python/gitted/run.sh": "#!/bin/sh\necho one\necho two\necho three\n",
    "test/test_core.py": "def test() -> None: ...\n",
}

#: Paths as in the repository.
CORE = ("python/gitted/core.py", "    second_3 = 103\n", "    second_3 = 1030\n")
MORE = ("python/gitted/sub/more.py", "    green_3 = 103\n", "    green_3 = 1030\n")


def checkout(lab: Lab, style: EditableStyle = "pth") -> Path:
    """A repository with one commit and a clean ``git status``."""
    folder = lab.folder("checkout") / "gitted"
    folder.mkdir()
    write_tree(folder, {**FILES, "style.txt": style + "\n"})
    (folder / "python/gitted/run.sh").chmod(0o755)
    lab.git(folder, "init", "-q")
    lab.git(folder, "add", "-A")
    lab.git(folder, "commit", "-q", "-m", "first")
    assert dirty(lab, folder) == []
    return folder


def dirty(lab: Lab, folder: Path) -> list[str]:
    """What ``git status`` says, ignored files included but for byte-code."""
    lines = lab.git(folder, "status", "--porcelain", "--ignored", "-uall").splitlines()
    return [line for line in lines if "__pycache__" not in line]


def installed_editable(lab: Lab, folder: Path, by: Literal["pip", "uv"]) -> Site:
    """A virtual environment in which the checkout is installed as editable."""
    site = lab.venv()
    if by == "pip":
        wheels.pip_install([], python=site.python, options=["-e", str(folder)])
    else:
        wheels.uv_install([], cache=lab.cache, python=site.python, options=["-e", str(folder)])
    assert dirty(lab, folder) == []
    return site
