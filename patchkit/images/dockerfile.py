"""The Dockerfile of a context, from facts to text.

Owns what an engine makes of its lines.  Nothing is looked up here.  What BuildKit, buildah and
kaniko all know is used, and no more.
"""

from __future__ import annotations

from typing import NamedTuple

from patchkit.hooks import words

#: Where the context lies in the image, and patchkit with an environment of its own.
PLACE = "/opt/patchkit"
PROGRAM = f"{PLACE}/venv/bin/patchkit"
#: Where the base image's pip is, which the interpreter of another environment can run: pip's own
#: option for that (--python) is not in the pip of every distribution still in use.
_PIP = words.shell(["import os, pip; print(os.path.dirname(os.path.dirname(pip.__file__)))"])


class Recipe(NamedTuple):
    """What a Dockerfile is made of.

    ``python``: the interpreter to patch, as the image calls it.  ``requirement``: what pip
    installs, with the options for it.  ``bundles``: as they are recorded.  ``has_args``: they
    may have launch arguments.  ``user``: whom the image runs as, where that is not root.
    """

    base: str
    python: str
    requirement: tuple[str, ...]
    bundles: tuple[str, ...]
    has_args: bool = False
    user: str | None = None
    command: tuple[str, ...] = ()


def render(recipe: Recipe) -> str:
    """The Dockerfile."""
    requirement = words.shell(recipe.requirement)
    verify = words.shell([PROGRAM, "verify", *recipe.bundles])
    root = "USER 0\n" if recipe.user is not None else ""
    back = f"USER {recipe.user}\n" if recipe.user is not None else ""
    return f"""\
# Written by patchkit bake, which writes it anew: build another image FROM this one instead of
# editing it. Another base: docker build --build-arg BASE=IMAGE
ARG BASE={recipe.base}
FROM ${{BASE}}
# The interpreter whose packages are patched, as the base image calls it. (PYTHON would be another
# one where the base image sets that: its ENV goes before an ARG.)
ARG IMAGE_PYTHON={recipe.python}
ENV PATCHKIT_PYTHON=${{IMAGE_PYTHON}} PATCHKIT_BUNDLES={PLACE}
{root}COPY . {PLACE}/
# All in one RUN: no layer holds half of it, and what does not verify gives no image.
# patchkit has an environment of its own, so that it changes no other package of the image.
# The files of the context may have come with the modes of a private folder.
RUN set -eu; umask 022; chmod -R a+rX {PLACE}; \\
    "$PATCHKIT_PYTHON" -m venv --clear --without-pip {PLACE}/venv; \\
    if pip=$("$PATCHKIT_PYTHON" -c {_PIP} 2>/dev/null); \\
    then PYTHONPATH="$pip" {PLACE}/venv/bin/python -m pip install --ignore-installed \\
        --no-cache-dir {requirement}; \\
    else uv pip install --python {PLACE}/venv/bin/python --no-cache \\
        {requirement}; \\
    fi; \\
    {PROGRAM} sync --project {PLACE}; \\
    {verify}; \\
    {PROGRAM} bake --installed --output {PLACE}
{back}{_launch(recipe)}"""


def _launch(recipe: Recipe) -> str:
    named = [word for name in recipe.bundles for word in ("--bundle", name)]
    placed = recipe.has_args and bool(recipe.command) and "{args}" not in recipe.command
    run = [PROGRAM, "run", *named, *(["--append-args"] if placed else []), "--"]
    if recipe.command:
        end = f"CMD {words.docker(recipe.command)}\n"
    else:
        end = (
            "# It empties the CMD of the base image: name the command in docker run, or in a CMD"
            " of your own"
            + ("; {args} stands for the bundles' launch arguments.\n" if recipe.has_args else ".\n")
        )
    return f"""\
# What does not verify is not launched. patchkit becomes the command, as process 1: signals and
# exit code are the command's own.
ENTRYPOINT {words.docker(run)}
{end}"""


def ignore() -> str:
    """The .dockerignore: what belongs to the context, and no file that came beside it."""
    kept = ("manifests", "patches", "loose", "wheels", "bake.json", "pyproject.toml")
    return "".join(["*\n", *(f"!{name}\n" for name in kept)])
