"""In the place of nvcc and of the linker: files in, one file out, and a list of what was read.

It follows ``#include`` as far as the given folders hold the files, writes the depfile that
ninja reads, and puts into the object by what factor the kernel scales.  Runs alone.
"""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]', re.MULTILINE)
GUARDED = re.compile(r"#ifdef PATCHKIT_TWICE\n(.*?)#else\n(.*?)#endif\n", re.DOTALL)
#: What the patch of the table puts in front of the product.
TWICE = "= 2.f * "


def after(arguments: list[str], *names: str) -> list[str]:
    """The arguments that follow one of these options."""
    return [value for name, value in pairwise(arguments) if name in names]


def read(path: Path, folders: list[Path], seen: dict[Path, str]) -> None:
    """Take in a file, and all that it includes."""
    if path in seen:
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    seen[path] = text
    for name in INCLUDE.findall(text):
        for folder in (path.parent, *folders):
            if (folder / name).is_file():
                read((folder / name).resolve(), folders, seen)
                break


def main(arguments: list[str]) -> None:
    """As nvcc with ``-c``: compile; else: link."""
    (out,) = after(arguments, "-o")
    if "-c" not in arguments:
        objects = [Path(name) for name in arguments if name.endswith(".o")]
        Path(out).write_text("".join(path.read_text() for path in objects))
        return
    folders = [Path(name) for name in after(arguments, "-isystem")]
    folders += [Path(name[2:]) for name in arguments if name.startswith("-I") and name[2:]]
    seen: dict[Path, str] = {}
    read(Path(*after(arguments, "-c")), folders, seen)
    defined = "-DPATCHKIT_TWICE" in arguments
    text = GUARDED.sub(lambda found: found[1 if defined else 2], "".join(seen.values()))
    Path(out).write_text(f"scales by {2.0 if TWICE in text else 1.0}\n")
    (depfile,) = after(arguments, "--dependency-output", "-MF")
    Path(depfile).write_text(f"{out}: {' '.join(str(path) for path in seen)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
