"""``bake`` on the command line."""

from __future__ import annotations

import os

import click

from patchkit.console import Settings, finish
from patchkit.errors import UsageError
from patchkit.options import bundles_option, common_options


@click.command(short_help="A build context for an image that has the bundles.")
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(),
    help="The folder of the context; one that bake wrote before is brought up to date.",
)
@click.option("--from", "base", metavar="IMAGE", help="The base image.")
@bundles_option(
    "A bundle, or a loose patch file, for the image (repeatable). Else all that is applied here."
)
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(),
    help="Take the set from [tool.patchkit] of the pyproject.toml there, or above.",
)
@click.option(
    "--image-python",
    default="python3",
    show_default=True,
    metavar="PATH",
    help="The interpreter whose packages are patched, as the base image calls it.",
)
@click.option(
    "--user",
    metavar="USER",
    help="Whom the base image runs as, where that is not root; root applies, and USER launches.",
)
@click.option(
    "--wheel",
    "wheels",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="A wheel of patchkit for the image; else one is made of the patchkit that runs here. With"
    " the wheels of all that it needs (repeatable) the build asks no package index.",
)
@click.option(
    "--requirement",
    metavar="REQUIREMENT",
    help="What pip is to install there instead: 'patchkit-sets==VERSION', or '… @ URL'.",
)
@click.option(
    "--no-fingerprint",
    is_flag=True,
    help="Let the image come to any fingerprint: for a machine without such an environment.",
)
@click.option("--check", is_flag=True, help="Exit with 1 where DIR is not up to date; write none.")
@click.option(
    "--installed",
    is_flag=True,
    help="In the build itself: exit with 1 where this environment is not what DIR says.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@common_options
@click.pass_obj
def bake(
    settings: Settings,
    folder: str,
    base: str | None,
    bundles: tuple[str, ...],
    project: str | None,
    image_python: str,
    user: str | None,
    wheels: tuple[str, ...],
    requirement: str | None,
    no_fingerprint: bool,
    check: bool,
    installed: bool,
    command: tuple[str, ...],
) -> int:
    """Write a build context for a container image: Dockerfile, bundles, locks, patchkit. COMMAND
    is what the image launches, with {args} where the bundles' launch arguments belong.

    The build applies and verifies in one layer. It fails where the set comes to another
    fingerprint than here, unless the base image has other releases, which it says. The same
    input gives the same bytes.

    \b
    Examples:
      patchkit bake --from lmsysorg/sglang:v0.5.9 -o image -- python3 -m sglang.launch_server {args}
      patchkit bake --from lmsysorg/sglang:v0.5.9 -o image --bundle sm120-fusion --check
    """
    from .bake import Wishes, compare_installed
    from .bake import bake as make

    options = settings.options
    place = os.path.normpath(os.path.join(options.cwd, os.path.expanduser(folder)))
    if installed:
        return finish(settings, compare_installed(options, place))
    if base is None:
        raise UsageError("the base image is not named", hint="--from IMAGE")
    for one, other, both in (
        ("--wheel", "--requirement", wheels and requirement is not None),
        ("--bundle", "--project", bundles and project is not None),
    ):
        if both:
            raise UsageError(f"{one} and {other} exclude each other", hint="give one of them")
    wishes = Wishes(
        place,
        base,
        image_python,
        user,
        bundles,
        project,
        wheels,
        requirement,
        command,
        compare=not no_fingerprint,
        check=check,
    )
    return finish(settings, make(options, wishes))
