"""What the code of a release does, patched or not: its own functions and modules, executed with
stand-ins for torch and for what is around them, without patchkit's evaluator.

Each function finds the code where that release has it.
"""

from __future__ import annotations

import ast
import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Optional
from unittest.mock import MagicMock

import pytest

from tests.shipped.stand_ins import (
    BFLOAT16,
    COMMON,
    COMMUNICATOR,
    CONTEXT,
    CUSTOM,
    DEVICE,
    JIT,
    SERVER_ARGS,
    SIZES,
    SYMM,
    Cell,
    Device,
    Files,
    Stubs,
    Tensor,
    execute,
    find,
    imported,
    parsed,
)

ADD_NORM = "sglang/srt/layers/layer_boundary/residual/add_norm.py"
OVERRIDES = "sglang/srt/arg_groups/overrides.py"
COMM_FUSION = "sglang/srt/layers/flashinfer_comm_fusion.py"
RUNTIME_CONTEXT = "sglang/srt/runtime_context.py"
UTILS = (COMMON, "sglang/srt/utils.py", "sglang/srt/layers/utils.py")
CUSTOM_UTILS = DEVICE + "custom_all_reduce_utils.py"
CUSTOM_V2 = DEVICE + "custom_all_reduce_v2.py"
OLD_SYMM = DEVICE + "symm_mem.py"
OLD_JIT = "flashinfer/comm/trtllm_ar.py"
MODEL = "Glm4MoeForCausalLM"


# -- which GPU ------------------------------------------------------------------------------


def arch_helpers(files: Files, capability: int, cuda: str = "12.8") -> dict[str, Any]:
    """The release's own ``is_sm*_supported``, for a GPU of this capability."""
    wanted = {f"is_{name}_supported" for name in ("sm90", "sm100", "sm120", "blackwell")}
    torch = SimpleNamespace(
        cuda=SimpleNamespace(get_device_capability=lambda device=None: (capability, 0)),
        version=SimpleNamespace(cuda=cuda),
    )
    checker = "_check_cuda_device_version"
    texts = [data.decode() for data in map(files.read, UTILS) if data is not None]
    (text,) = [one for one in texts if checker in one or "def is_sm100_supported" in one]
    nodes: list[ast.stmt] = [
        node
        for node in parsed(text).body
        if (isinstance(node, ast.FunctionDef) and node.name in {*wanted, checker})
        or (isinstance(node, ast.Assign) and wanted & {ast.unparse(t) for t in node.targets})
    ]
    namespace: dict[str, Any] = {
        "List": list,
        "Tuple": tuple,
        "lru_cache": lru_cache,
        "partial": partial,
        "torch": torch,
        "is_cuda": lambda: True,
        "is_cuda_alike": lambda: True,
        "get_device_sm": lambda: 10 * capability,
    }
    execute(nodes, namespace)
    return {name: namespace[name] for name in wanted if name in namespace}


def platform(files: Files, helpers: dict[str, Any]) -> Any:
    """What ``get_platform()`` gives: the release's own table of names, asked the same way."""
    data = files.read(RUNTIME_CONTEXT)
    if data is None or b"_PLATFORM_PROBES" not in data:
        return None
    (table,) = [
        node.value
        for node in parsed(data.decode()).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_PLATFORM_PROBES"
    ]
    assert table is not None
    asked = {name: helper for name, helper in ast.literal_eval(table).items() if helper in helpers}
    return SimpleNamespace(**{name: helpers[helper]() for name, helper in asked.items()})


def around(files: Files, tree: ast.Module, capability: int) -> dict[str, Any]:
    """The names that a module's own imports bring of the helpers for architectures."""
    helpers = arch_helpers(files, capability)
    offered = {**helpers, "is_cuda": lambda: True, "is_flashinfer_available": lambda: True}
    names: dict[str, Any] = {}
    for source in ("sglang.srt.utils", "sglang.srt.utils.common", "sglang.srt.layers.utils"):
        names.update(imported(tree, source, offered))
    found = platform(files, helpers)
    names.update(imported(tree, "sglang.srt.runtime_context", {"get_platform": lambda: found}))
    return names


# -- the fused all-reduce in sglang -----------------------------------------------------------


def fuses(files: Files, capability: int, *, flag: bool = True, batch: int = 8) -> bool:
    """Whether the runtime gate lets a batch into the fused kernel."""
    path = COMMUNICATOR if files.read(COMMUNICATOR) is not None else ADD_NORM
    tree = parsed(files.text(path))
    backend = "auto" if flag else None
    args = SimpleNamespace(
        enable_flashinfer_allreduce_fusion=flag,
        flashinfer_allreduce_fusion_backend=backend,
        attn_cp_size=1,
    )
    namespace = {
        **around(files, tree, capability),
        "is_dp_attention_enabled": lambda: False,
        "is_flashinfer_allreduce_unavailable": lambda: False,
        "uses_cutedsl_ar_fusion": lambda: False,
        "get_global_server_args": lambda: args,
        "get_server_args": lambda: args,
        "get_exec": lambda: SimpleNamespace(comm=args),
        "global_server_args_dict": {"enable_flashinfer_allreduce_fusion": flag},
        "layernorm": SimpleNamespace(forward_with_allreduce_fusion=None),
        "hidden_states": SimpleNamespace(shape=(batch, 1)),
    }
    names = {
        "_is_cuda",
        "_is_flashinfer_available",
        "_is_sm90_supported",
        "_is_sm100_supported",
        "_is_sm120_supported",
        "FUSE_ALLREDUCE_MAX_BATCH_SIZE",
    }
    nodes: list[ast.stmt] = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and names & {ast.unparse(t) for t in node.targets}
    ]
    execute(nodes, namespace)
    for name in ("apply_flashinfer_allreduce_fusion", "flashinfer_ar_fusion_applies"):
        if f"def {name}(" in files.text(path):
            return bool(execute([find(tree, name)], namespace)[name](batch))
    (gate,) = [
        node.test
        for node in ast.walk(find(tree, "_gather_hidden_states_and_residual"))
        if isinstance(node, ast.If)
        and "forward_with_allreduce_fusion(" in ast.unparse(node.body[0])
    ]
    return bool(eval(compile(ast.Expression(gate), "<gate>", "eval"), namespace))


def enables_itself(files: Files, capability: int, **settings: Any) -> bool:
    """Whether the release switches the fusion on at start-up, for a model that it lists (before
    0.5.7: for GPT-OSS)."""
    model = settings.pop("model_arch", MODEL)
    given: dict[str, Any] = {
        "enable_flashinfer_allreduce_fusion": False,
        "flashinfer_allreduce_fusion_backend": None,
        "enable_dp_attention": False,
        "nnodes": 1,
        "tp_size": 8,
        "attn_cp_size": 1,
        "disable_custom_all_reduce": False,
        "moe_a2a_backend": "none",
        **settings,
    }
    if files.read(OVERRIDES) is not None:
        return _overrides(files, capability, SimpleNamespace(**given), model)
    tree = parsed(files.text(SERVER_ARGS))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ServerArgs").body
    (function,) = [
        node
        for node in body
        if isinstance(node, ast.FunctionDef)
        and node.name in ("_handle_model_specific_adjustments", "model_specific_adjustments")
    ]
    (statement,) = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If)
        and _switches(node.body[0])
        and "supported()" in ast.unparse(node.test)
        and "is_cuda()" not in ast.unparse(node.test)  # of DeepSeek, among other settings
    ]
    server_args = SimpleNamespace(**given)
    names = around(files, tree, capability)
    names.update(
        self=server_args,
        model_arch=model,
        is_h20_device=False,
        logger=logging.getLogger("test"),
    )
    execute([statement], names)
    return bool(
        server_args.enable_flashinfer_allreduce_fusion
        or server_args.flashinfer_allreduce_fusion_backend
    )


def _switches(node: ast.stmt) -> bool:
    """Whether a statement switches the fusion on, or does so where there is no DP attention."""
    if isinstance(node, ast.If) and ast.unparse(node.test).startswith(
        "not self.enable_dp_attention"
    ):
        node = node.body[0]
    return ast.unparse(node) in (
        "self.enable_flashinfer_allreduce_fusion = True",
        "self.flashinfer_allreduce_fusion_backend = 'auto'",
    )


def _overrides(files: Files, capability: int, view: Any, model: str) -> bool:
    tree = parsed(files.text(OVERRIDES))
    name = "_flashinfer_allreduce_fusion_auto_enable"
    function = copy.copy(find(tree, name))
    function.decorator_list = []
    config = SimpleNamespace(hf_config=SimpleNamespace(architectures=[model]))
    view.get_model_config = lambda: config
    namespace = {
        **around(files, tree, capability),
        "Any": Any,
        "logger": logging.getLogger("test"),
        "envs": SimpleNamespace(
            SGLANG_FLASHINFER_MNNVL_CUTEDSL_AR_FUSION=SimpleNamespace(get=lambda: False)
        ),
        "model_config_of": lambda view: config,
        "attn_dp_enabled_of": lambda view: view.enable_dp_attention,
    }
    listed = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "_FLASHINFER_ALLREDUCE_FUSION_ARCHS"
    ]
    execute([*listed, function], namespace)
    chosen: dict[str, str] = namespace[name](view)
    return bool(chosen.get("flashinfer_allreduce_fusion_backend"))


def resolves(files: Files, capability: int, backend: str = "auto", *, nodes: int = 1) -> str | None:
    """What the resolver makes of a backend; None where it raises."""
    tree = parsed(files.text(COMM_FUSION))
    namespace = around(files, tree, capability)
    names = ("_mnnvl_supported", "_resolve_backend")
    execute([find(tree, name) for name in names], namespace)
    try:
        return str(namespace["_resolve_backend"](backend, nodes > 1))
    except ValueError:
        return None


# -- FlashInfer's generator -------------------------------------------------------------------


def generated_flags(files: Files, archs: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the release's ``gen_trtllm_comm_module`` hands to nvcc for these architectures."""
    with monkeypatch.context() as patch:
        patch.setenv("FLASHINFER_CUDA_ARCH_LIST", archs)
        stubs = Stubs(patch)
        stubs.module("torch.cuda", device_count=lambda: 0)
        stubs.module("flashinfer").__dict__["__path__"] = [str(files.root / "flashinfer")]
        stubs.module("flashinfer.jit")
        mock = MagicMock()
        stubs.module(
            "flashinfer.jit.cpp_ext",
            is_cuda_version_at_least=lambda version: True,
            __getattr__=lambda name: getattr(mock, name),
        )
        context = stubs.execute(files, CONTEXT, "flashinfer.compilation_context")
        namespace: dict[str, Any] = {
            "JitSpec": object,
            "current_compilation_context": context["CompilationContext"](),
            "gen_jit_spec": lambda name, sources, **rest: {"name": name, **rest},
            "jit_env": SimpleNamespace(FLASHINFER_CSRC_DIR=Path("csrc")),
        }
        path = (
            OLD_JIT
            if "def gen_trtllm_comm_module" in (files.read(OLD_JIT) or b"").decode()
            else JIT
        )
        execute([find(parsed(files.text(path)), "gen_trtllm_comm_module")], namespace)
        spec = namespace["gen_trtllm_comm_module"]()
    assert spec["name"] == "trtllm_comm"
    return [flag for flag in spec["extra_cuda_cflags"] if "gencode" in flag]


def gencode(arch: str) -> str:
    return f"-gencode=arch=compute_{arch},code=sm_{arch}"


def refusal(files: Files, archs: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    with pytest.raises(RuntimeError) as caught:
        generated_flags(files, archs, monkeypatch)
    return str(caught.value).encode()


# -- the custom all-reduce -------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """What the stand-ins say of the machine that the custom all-reduce finds."""

    capability: int
    gpus: int = 8
    nvlink: bool = False
    peers: bool = True
    platform: Literal["cuda", "hip", "musa"] = "cuda"


@dataclass
class Outcome:
    """Whether it is on, what the compiled kernel was told, and whether it takes 4 MiB."""

    on: bool
    kernel_flag: bool | None
    takes_a_message: bool


def _nvlink(files: Files, machine: Machine, stubs: Stubs) -> Callable[..., bool | None] | None:
    """The release's own ``can_use_custom_all_reduce_with_nvlink``, from 0.5.10 on."""
    data = files.read(CUSTOM_UTILS)
    name = "can_use_custom_all_reduce_with_nvlink"
    if data is None or f"def {name}(" not in data.decode():
        return None
    namespace: dict[str, Any] = {
        "List": list,
        "Optional": Optional,
        "torch": stubs.module("torch"),
        "dist": stubs.module("torch.distributed"),
        "os": SimpleNamespace(environ={}),
        "logger": logging.getLogger("test"),
        "_is_cuda": machine.platform == "cuda",
        "_is_hip": machine.platform == "hip",
        "in_the_same_node_as": lambda group, source_rank: [True] * machine.gpus,
        "is_full_nvlink": lambda ids, count: machine.nvlink,
        "can_p2p": lambda rank, count: machine.peers,
    }
    execute([find(parsed(data.decode()), name)], namespace)
    function: Callable[..., bool | None] = namespace[name]
    return function


def second_takes_it(files: Files, answer: bool | None) -> bool:
    """Whether the second implementation is on, given what was found out."""
    tree = parsed(files.text(CUSTOM_V2))
    name = "can_use_custom_all_reduce_v2"
    namespace: dict[str, Any] = {
        "ProcessGroup": object,
        "torch": SimpleNamespace(device=object),
        "dist": SimpleNamespace(get_world_size=lambda group: 8),
        "THRESHOLD_2_SHOT_MAP": {8: None},
        "_maybe_init_config": lambda: None,
        "get_supported_world_sizes": lambda: [8],
        "in_the_same_node_as": lambda group, source_rank: [True],
        "can_use_custom_all_reduce_with_nvlink": lambda **_: answer,
    }
    execute([find(tree, name)], namespace)
    return bool(namespace[name](group=object(), device=object()))


def set_up_custom_all_reduce(
    files: Files, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> Outcome:
    """The release's whole module, and one ``CustomAllreduce`` of it."""
    told: list[bool] = []

    def init_custom_ar(meta: Any, data: Any, rank: int, full_nvlink: bool) -> int:
        told.append(full_nvlink)
        return 1

    def all_gather(out: list[Cell], mine: Cell, group: Any) -> None:
        for number, cell in enumerate(out):
            cell.values = [number]

    with monkeypatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.delenv("SGLANG_SKIP_P2P_CHECK", raising=False)
        stubs = Stubs(patch)
        stubs.module(
            "torch",
            device=Device,
            Tensor=object,
            int="int",
            uint8="uint8",
            tensor=lambda values, **_: Cell(values),
            empty=lambda *_, **__: object(),
        )
        stubs.module(
            "torch.cuda",
            device_count=lambda: machine.gpus,
            get_device_capability=lambda device: (machine.capability, 0),
        )
        stubs.module(
            "torch.distributed",
            ProcessGroup=object,
            Backend=SimpleNamespace(NCCL="nccl"),
            get_backend=lambda group: "gloo",
            get_rank=lambda group: 0,
            get_world_size=lambda group: machine.gpus,
            all_gather=all_gather,
        )
        device = "sglang.srt.distributed.device_communicators."
        stubs.module(
            device + "custom_all_reduce_ops",
            IS_CUSTOM_AR_AVAILABLE=True,
            meta_size=lambda: 0,
            init_custom_ar=init_custom_ar,
            register_buffer=lambda *_: None,
            dispose=lambda _: None,
        )
        stubs.module(device + "cuda_wrapper", CudaRTLibrary=MagicMock())
        stubs.module(
            "sglang.srt._custom_ops", **vars(stubs.module(device + "custom_all_reduce_ops"))
        )
        stubs.module("sglang.srt._custom_ops", use_vllm_custom_allreduce=False)
        stubs.module("sgl_kernel")
        stubs.module(
            device + "custom_all_reduce_utils",
            gpu_p2p_access_check=lambda a, b: machine.peers,
            is_full_nvlink=lambda ids, count: machine.nvlink,
            is_weak_contiguous=lambda tensor: True,
            can_use_custom_all_reduce_with_nvlink=_nvlink(files, machine, stubs),
        )
        stubs.module(
            "sglang.srt.distributed.parallel_state",
            in_the_same_node_as=lambda group, source_rank: [True] * machine.gpus,
        )
        stubs.module("sglang.srt.environ", envs=MagicMock())
        stubs.module(
            "sglang.srt.compilation.piecewise_context_manager",
            is_in_piecewise_cuda_graph=lambda: False,
        )
        stubs.module(
            "sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph",
            is_in_tc_piecewise_cuda_graph=lambda: False,
        )
        stubs.module(
            "sglang.srt.utils",
            get_bool_env_var=lambda *_, **__: False,
            is_cuda=lambda: True,
            is_hip=lambda: False,
            is_musa=lambda: False,
            log_info_on_rank0=lambda *_: None,
        )
        module = stubs.execute(files, CUSTOM, device + "custom_all_reduce")
        cls = module["CustomAllreduce"]
        cls.create_shared_buffer = staticmethod(lambda *_, **__: [0])
        cls.free_shared_buffer = staticmethod(lambda *_, **__: None)
        made = cls(group=object(), device=0)
        message = SimpleNamespace(numel=lambda: 2 * 1024 * 1024, element_size=lambda: 2)
        return Outcome(not made.disabled, told[0] if told else None, made.should_custom_ar(message))


OFF = Outcome(False, None, False)


# -- torch symmetric memory ------------------------------------------------------------------


def reduce_symmetrically(
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    capability: int,
    gpus: int = 8,
    *,
    multicast: bool,
) -> str:
    """``disabled``, the kernel that ran, or the error: both modules of the release, run."""
    ran: list[str] = []

    def kernel(name: str) -> Callable[..., None]:
        return lambda buffer, operation, group: ran.append(name)

    with monkeypatch.context() as patch:
        stubs = Stubs(patch)
        stubs.module(
            "torch",
            device=Device,
            Tensor=Tensor,
            bfloat16=BFLOAT16,
            empty_like=lambda tensor: Tensor(tensor.count, tensor.dtype),
            ops=SimpleNamespace(
                symm_mem=SimpleNamespace(
                    multimem_all_reduce_=kernel("multimem"),
                    two_shot_all_reduce_=kernel("two_shot"),
                )
            ),
        )
        stubs.module(
            "torch.cuda",
            set_device=lambda device: None,
            get_device_capability=lambda device: (capability, 0),
        )
        stubs.module("torch.distributed", ProcessGroup=object, get_world_size=lambda group: gpus)
        stubs.module(
            "torch.distributed._symmetric_memory",
            empty=lambda count, device, dtype: Tensor(count, dtype),
            rendezvous=lambda buffer, group: SimpleNamespace(
                multicast_ptr=0x7F0000000000 if multicast else 0
            ),
        )
        stubs.module("sglang.srt.utils", is_cuda=lambda: True, is_hip=lambda: False)
        device = "sglang.srt.distributed.device_communicators."
        off = SimpleNamespace(get=lambda: False)
        stubs.module(
            "sglang.srt.environ",
            envs=SimpleNamespace(
                SGLANG_OPT_USE_INKLING_CUSTOM_AR=off, SGLANG_OPT_USE_INKLING_FUSED_AR_SCONV=off
            ),
        )
        stubs.module("sglang.srt.runtime_context", get_exec=None)
        stubs.module("sglang.srt.utils", get_device_capability=lambda: (capability, 0))
        stubs.execute(files, SIZES, device + "all_reduce_utils")
        path = SYMM if files.read(SYMM) is not None else OLD_SYMM
        prefix = "Torch" if path == SYMM else ""
        module = stubs.execute(files, path, device + path.rpartition("/")[2].removesuffix(".py"))
        try:
            group = SimpleNamespace(group_name="tp")
            made = module[f"{prefix}SymmMemCommunicator"](group, 0)
            message = Tensor(4096, BFLOAT16)
            message.device = made.device
            should = f"should_{prefix.lower()}{'_' if prefix else ''}symm_mem_allreduce"
            if not getattr(made, should)(message):
                assert made.disabled
                return "disabled"
            made.all_reduce(message)
        except KeyError as error:
            return f"KeyError: {error}"
    (name,) = ran
    return name
