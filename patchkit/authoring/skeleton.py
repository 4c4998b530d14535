"""A manifest to fill in."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.distributions import find_distribution
from patchkit.environment import open_environment
from patchkit.errors import PatchkitError
from patchkit.names import normalise
from patchkit.publishing import publish
from patchkit.session import Options, Report
from patchkit.writing import manifests

from . import draft, place

_TARGET = """
# [[target]]
# distribution = "{distribution}"
# [[target.variant]]
# versions = "{versions}"
# strip = 1
# patches = ["{name}/{distribution}-{version}/0001-what-it-does.patch"]
"""
_REST = """
# [[assert]]                              # what must be so afterwards, and is not before
# distribution = "{distribution}"
# file = "PACKAGE/module.py"
# within = "function"
# text = "the new code"

# [profile]                               # settings for the launch
# env = {{ NAME = "value" }}
# args = ["--flag"]

# [caches]                                # kernels to set aside, where a JIT's source is touched
# flashinfer-jit = ["module"]
"""


def new(
    options: Options,
    name: str,
    distributions: Sequence[str],
    *,
    message: str | None = None,
    dry_run: bool = False,
) -> Report:
    """Write ``manifests/NAME.toml`` with all that can be known, and the rest as comments."""
    folder = place.target_folder(options, make=True)
    place.check_new_name(folder, name)
    subject, _, text = (message or name.replace("-", " ").capitalize()).partition("\n")
    manifest = manifests.new_manifest(name, subject, text)
    names = [normalise(one) for one in distributions]
    for one in names or ["sglang"]:
        version = _installed(options, one) or "VERSION"
        manifest += _TARGET.format(
            name=name,
            distribution=one,
            version=version,
            versions=draft.exact(version) if version != "VERSION" else "==VERSION",
        )
    manifest += _REST.format(distribution=names[0] if names else "sglang")
    contents = {f"manifests/{name}.toml": manifests.checked(manifest, name)}
    written = [] if dry_run else publish(folder, contents, dict.fromkeys(contents))
    report = Report(
        "new",
        {"bundle": name, "folder": folder, "written": written},
        changed=bool(written),
    )
    report.notes.append(
        f"it does nothing yet: patchkit import, sed or edit give {name} patches; or fill in"
        f" manifests/{name}.toml by hand"
    )
    return report


def _installed(options: Options, distribution: str) -> str | None:
    try:
        env = open_environment(options.python, options.root, options.environ)
        dist = find_distribution(env, distribution)
    except PatchkitError:
        return None
    return None if dist is None else dist.version
