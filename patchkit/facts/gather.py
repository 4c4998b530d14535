"""All facts of this machine and one environment, gathered once."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.environment import Environment

from .model import Facts
from .packages import read_packages
from .system import Roots, python_of, read_gpus, read_system
from .toolkit import find_toolkit


def gather(env: Environment, environ: Mapping[str, str], roots: Roots | None = None) -> Facts:
    """The facts; what is not there, or could not be read in bounded time, is absent."""
    roots = roots or Roots()
    toolkit, remark = find_toolkit(env, environ)
    packages, remarks = read_packages(env)
    facts = read_system(roots)._replace(
        python=python_of(env),
        toolkit=toolkit,
        packages=packages,
        remarks=tuple([remark, *remarks] if remark else remarks),
    )
    return read_gpus(facts, roots)
