"""Promise 7: no kernel outlives its source: FlashInfer's own JIT, with a stand-in for nvcc.

The same table on a GPU: ``python3 -m tests.kernels.table``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels import table


@pytest.mark.slow
@pytest.mark.parametrize("part", table.PARTS)
def test_the_kernel_that_runs_is_of_the_sources_that_are_there(part: str, tmp_path: Path) -> None:
    machine = table.goes_through(part, tmp_path, "stand-in")
    assert not machine.failed, machine.failed
    assert [row for row in machine.rows if not row.right] == []
    assert machine.left == []
    assert len(machine.rows) > 2


@pytest.mark.slow
def test_a_package_that_resolves_its_own_path_compiles_the_cache(tmp_path: Path) -> None:
    """What docs/reliability.md says of environments of symlinks: the patch is not seen, and
    nothing of it is left after the revert."""
    machine = table.Machine(tmp_path / "links", "stand-in", "links", links="symlink")
    machine.work.mkdir()
    machine.install()
    machine.patchkit("apply", "twice")
    machine.runs("apply", table.RIGHT)
    machine.patchkit("revert", "--all")
    machine.runs("revert", table.RIGHT)
    assert [row for row in machine.rows if not row.right] == []
