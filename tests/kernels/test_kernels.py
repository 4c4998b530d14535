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
