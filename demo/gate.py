"""Asks the installed FlashInfer whether it would compile its all-reduce for an architecture.

    build/demo/target/bin/python -B demo/gate.py 12.0

Runs the real function ``gen_trtllm_comm_module`` of the installed file, on the real
``flashinfer/compilation_context.py``; torch, CUDA and the rest of FlashInfer, which need a
GPU machine, are stand-ins.  Changes nothing and takes a fraction of a second.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

GENERATOR = "gen_trtllm_comm_module"


def stand_in(name: str, **attributes: Any) -> None:
    """A module that holds nothing but ``attributes``, where imports find it."""
    module = ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def flags(site_packages: Path) -> list[str]:
    """What the generator hands to the compiler, as its author wrote it there.

    Raises RuntimeError, with FlashInfer's own words, where the gate is closed.
    """
    package = site_packages / "flashinfer"
    stand_in("torch", cuda=SimpleNamespace(device_count=lambda: 0))
    stand_in("flashinfer", __path__=[str(package)])
    stand_in("flashinfer.jit")
    stand_in(
        "flashinfer.jit.cpp_ext",
        is_cuda_version_at_least=lambda version: True,
        __getattr__=lambda name: None,
    )
    context: dict[str, Any] = {
        "__name__": "flashinfer.compilation_context",
        "__package__": "flashinfer",
    }
    exec((package / "compilation_context.py").read_text(encoding="utf-8"), context)
    source = ast.parse((package / "jit" / "comm.py").read_text(encoding="utf-8"))
    wanted: list[ast.stmt] = [
        node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == GENERATOR
    ]
    namespace: dict[str, Any] = {
        "JitSpec": object,
        "current_compilation_context": context["CompilationContext"](),
        "gen_jit_spec": lambda name, sources, **rest: rest,
        "jit_env": SimpleNamespace(FLASHINFER_CSRC_DIR=Path("csrc")),
    }
    exec(compile(ast.Module(wanted, []), "comm.py", "exec"), namespace)
    found = namespace[GENERATOR]()["extra_cuda_cflags"]
    return [flag for flag in found if "gencode" in flag]


def main() -> None:
    """One line: the flags, or why there are none."""
    architecture = sys.argv[1]
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = architecture
    try:
        answer = " ".join(flags(Path(sysconfig.get_path("purelib"))))
    except RuntimeError as error:
        answer = f"RuntimeError: {error}"
    print(f"{GENERATOR}() for {architecture}: {answer}")


if __name__ == "__main__":
    main()
