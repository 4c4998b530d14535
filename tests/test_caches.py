"""What ``[caches]`` means: where each JIT keeps what it built, and what is set aside of it.

The folders are laid out as the compilers do it, their variables are read as they read them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from patchkit.caches import folders_to_set_aside
from patchkit.errors import Refused
from patchkit.jit import CACHES
from tests import releases
from tests.support.lab import BOLT, KERNEL, Lab, Site, needs_root

pytest_plugins = ("tests.support.fixtures",)


def lay(base: Path, *folders: str) -> None:
    """Folders with something built in each."""
    for folder in folders:
        (base / folder).mkdir(parents=True)
        (base / folder / "module.so").write_text(f"built in {folder}")


def aside(kind: str, name: str, env: Mapping[str, str]) -> list[tuple[str, str]]:
    return folders_to_set_aside(kind, (name,), env, "label")


def named(kind: str, name: str, env: Mapping[str, str], base: Path) -> list[str]:
    """What is set aside, relative to ``base``; its new name lies below the same root."""
    found = aside(kind, name, env)
    for source, target in found:
        assert target.endswith("-label") and "patchkit-aside" in target
        assert os.path.isdir(source) and not os.path.exists(target)
    return [os.path.relpath(source, base) for source, _ in found]


# --- where it is, by the variables that each compiler reads ------------------------------

HOME, OTHER = "{base}/home", "{base}/other"
#: kind, variables, name, folder that is meant, folders that are not.
PLACES = [
    ("flashinfer-jit", {"HOME": HOME}, "norm",
     "home/.cache/flashinfer/0.6.3/90a/cached_ops/norm",
     ["home/.cache/flashinfer/0.6.3/90a/cached_ops/norm_more",
      "home/.cache/flashinfer/0.6.3/90a/generated/norm"]),
    ("flashinfer-jit", {"HOME": HOME, "FLASHINFER_WORKSPACE_BASE": OTHER}, "norm",
     "other/.cache/flashinfer/0.6.17/100a_120a/cached_ops/norm",
     ["home/.cache/flashinfer/0.6.17/100a_120a/cached_ops/norm"]),
    ("tvm-ffi", {"HOME": HOME}, "sgl_kernel_jit_norm",
     "home/.cache/tvm-ffi/sgl_kernel_jit_norm_128_bf16_t_36ecfb0dd421562b",
     ["home/.cache/tvm-ffi/sgl_kernel_jit_normal_36ecfb0dd421562b"]),
    ("tvm-ffi", {"HOME": HOME, "TVM_FFI_CACHE_DIR": OTHER}, "k", "other/k_0123456789abcdef",
     ["home/.cache/tvm-ffi/k_0123456789abcdef"]),
    ("tvm-ffi", {"HOME": HOME, "TVM_FFI_CACHE_DIR": "~/mine"}, "k", "home/mine/k", []),
    ("torch-extensions", {"HOME": HOME}, "radix", "home/.cache/torch_extensions/py311_cu130/radix",
     ["home/.cache/torch_extensions/py311_cu130/radix2"]),
    ("torch-extensions", {"HOME": HOME, "XDG_CACHE_HOME": OTHER}, "radix",
     "other/torch_extensions/py312_cpu/radix", []),
    ("torch-extensions", {"HOME": HOME, "TORCH_EXTENSIONS_DIR": OTHER}, "radix", "other/radix",
     ["home/.cache/torch_extensions/py311_cu130/radix", "other/more/radix"]),
    ("inductor", {"HOME": HOME, "TORCHINDUCTOR_CACHE_DIR": OTHER}, "fxgraph", "other/fxgraph",
     ["other/aotautograd"]),
    ("inductor", {"TMPDIR": OTHER, "USER": "a/b"}, "fxgraph", "other/torchinductor_a_b/fxgraph",
     ["other/torchinductor_c/fxgraph"]),
    ("deep-gemm", {"HOME": HOME}, "fp8_gemm", "home/.deep_gemm/cache/kernel.fp8_gemm.0a1b",
     ["home/.deep_gemm/cache/kernel.fp8_gemm_nt.0a1b", "home/.deep_gemm/tmp/kernel.fp8_gemm.0a1b"]),
    ("deep-gemm", {"HOME": HOME}, "k", "home/.cache/deep_gemm/cache/kernel.k.0a", []),
    ("deep-gemm", {"SGLANG_DG_CACHE_DIR": OTHER, "HOME": HOME}, "k", "other/cache/kernel.k.0a", []),
    ("deep-gemm", {"DG_JIT_CACHE_DIR": OTHER, "HOME": HOME}, "k", "other/cache/kernel.k.0a", []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "env", "name", "meant", "others"), PLACES)
def test_where_each_compiler_keeps_it(
    tmp_path: Path, kind: str, env: dict[str, str], name: str, meant: str, others: list[str]
) -> None:
    given = {key: value.format(base=tmp_path) for key, value in env.items()}
    assert named(kind, name, given, tmp_path) == []
    lay(tmp_path, meant, *others)
    assert named(kind, name, given, tmp_path) == [meant]


@pytest.mark.parametrize(
    ("env", "root"),
    [
        ({"HOME": HOME}, "home/.triton/cache"),
        ({"HOME": HOME, "TRITON_HOME": OTHER}, "other/.triton/cache"),
        ({"HOME": HOME, "TRITON_CACHE_DIR": OTHER}, "other"),
        ({"HOME": HOME, "TRITON_CACHE_DIR": " "}, "home/.triton/cache"),
    ],
)
def test_triton_names_folders_by_a_hash_and_files_by_the_kernel(
    tmp_path: Path, env: dict[str, str], root: str
) -> None:
    given = {key: value.format(base=tmp_path) for key, value in env.items()}
    for key, kernel in (("AAA", "rms_norm"), ("BBB", "rms_norm_more"), ("CCC", "rms_norm")):
        (tmp_path / root / key).mkdir(parents=True)
        for file in (f"{kernel}.cubin", f"__grp__{kernel}.json"):
            (tmp_path / root / key / file).touch()
    assert named("triton", "rms_norm", given, tmp_path) == [f"{root}/AAA", f"{root}/CCC"]


def test_every_release_and_architecture_is_meant(tmp_path: Path) -> None:
    top = "home/.cache/flashinfer"
    built = [f"{top}/{v}/{a}/cached_ops/norm" for v in ("0.6.1", "0.6.3") for a in ("120a", "90a")]
    lay(tmp_path, *built, f"{top}/cubins", f"{top}/patchkit-aside/0.6.1/90a/norm-before")
    assert named("flashinfer-jit", "norm", {"HOME": str(tmp_path / "home")}, tmp_path) == built


@pytest.mark.parametrize("value", ["", "work"])
def test_a_workspace_that_is_relative_is_taken_as_flashinfer_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """``Path(os.getenv(…))``, also of an empty variable: below the working directory."""
    monkeypatch.chdir(tmp_path)
    meant = os.path.join(value, ".cache/flashinfer/0.6.3/90a/cached_ops/norm")
    lay(tmp_path, meant)
    env = {"FLASHINFER_WORKSPACE_BASE": value, "HOME": str(tmp_path / "home")}
    assert named("flashinfer-jit", "norm", env, tmp_path) == [meant]


@pytest.mark.parametrize("version", ["0.6.1", "0.6.2", "0.6.3", "0.6.4", "0.6.17"])
def test_each_release_of_flashinfer_keeps_it_there(version: str, tmp_path: Path) -> None:
    """Its own ``jit/env.py`` is asked, with stand-ins for what needs a GPU."""
    import subprocess
    import sys

    code = (
        "import importlib, sys\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from tests.kernels.rmsnorm import package, stand_in\n"
        "root = Path(sys.argv[2])\n"
        "stand_in('torch')\n"
        "package('flashinfer', root / 'flashinfer')\n"
        "package('flashinfer.jit', root / 'flashinfer/jit')\n"
        "print(importlib.import_module('flashinfer.jit.env').FLASHINFER_JIT_DIR)\n"
    )
    tree = releases.tree("flashinfer-python", version)
    for env in ({}, {"FLASHINFER_WORKSPACE_BASE": str(tmp_path / "base")}):
        given = {"HOME": str(tmp_path / "home"), "FLASHINFER_CUDA_ARCH_LIST": "12.0a 9.0a", **env}
        done = subprocess.run(
            [sys.executable, "-B", "-c", code, str(releases.ROOT), str(tree)],
            env=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        built = Path(done.stdout.strip(), "norm")
        assert built.parts[-4:-1] == (version, "90a_120a", "cached_ops")
        built.mkdir(parents=True)
        assert [source for source, _ in aside("flashinfer-jit", "norm", given)] == [str(built)]


def test_without_a_home_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id without an account, as containers have it."""

    def no_account(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", no_account)
    for kind in CACHES:
        assert aside(kind, "norm", {}) == []


def test_an_unknown_kind_says_which_are_known() -> None:
    with pytest.raises(Refused, match="no cache is called 'nothing'") as caught:
        aside("nothing", "norm", {})
    assert "flashinfer-jit, tvm-ffi" in (caught.value.hint or "")


# --- never outside the root --------------------------------------------------------------


def flashinfer_home(base: Path) -> Path:
    return base / "home/.cache/flashinfer/0.6.3/90a/cached_ops"


@pytest.mark.parametrize("level", ["cached_ops", "90a", "0.6.3", "patchkit-aside"])
def test_a_symlink_inside_a_cache_leads_nothing_out(tmp_path: Path, level: str) -> None:
    built = flashinfer_home(tmp_path)
    lay(built, "norm")
    outside = tmp_path / "outside"
    if level == "patchkit-aside":
        outside.mkdir()
        (tmp_path / "home/.cache/flashinfer" / level).symlink_to(outside)
    else:
        folder = next(parent for parent in (built, *built.parents) if parent.name == level)
        folder.rename(outside)
        folder.symlink_to(outside)
    with pytest.raises(Refused) as caught:
        aside("flashinfer-jit", "norm", {"HOME": str(tmp_path / "home")})
    assert caught.value.code == "cache-leads-out"
    assert level in str(caught.value)


def test_a_root_that_is_itself_a_symlink_is_the_users_own_choice(tmp_path: Path) -> None:
    """``~/.cache`` on a faster disk: what is moved stays below where it leads."""
    lay(tmp_path / "scratch", "flashinfer/0.6.3/90a/cached_ops/norm")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.cache").symlink_to(tmp_path / "scratch")
    ((source, target),) = aside("flashinfer-jit", "norm", {"HOME": str(tmp_path / "home")})
    assert os.path.realpath(source).startswith(str(tmp_path / "scratch"))
    assert os.path.realpath(target).startswith(str(tmp_path / "scratch"))


def test_a_module_that_is_a_symlink_is_moved_as_one(tmp_path: Path) -> None:
    lay(tmp_path, "outside")
    built = flashinfer_home(tmp_path)
    built.mkdir(parents=True)
    (built / "norm").symlink_to(tmp_path / "outside")
    ((source, _),) = aside("flashinfer-jit", "norm", {"HOME": str(tmp_path / "home")})
    assert source == str(built / "norm")


def test_inductors_default_is_only_taken_from_oneself(tmp_path: Path) -> None:
    """It lies in /tmp, where anybody can have made it first."""
    env = {"TMPDIR": str(tmp_path), "USER": "me"}
    lay(tmp_path, "elsewhere/fxgraph")
    (tmp_path / "torchinductor_me").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="not yours"):
        aside("inductor", "fxgraph", env)
    (tmp_path / "torchinductor_me").unlink()
    needs_root()
    lay(tmp_path, "torchinductor_me/fxgraph")
    os.chown(tmp_path / "torchinductor_me", 4321, 4321)
    with pytest.raises(Refused, match="not yours"):
        aside("inductor", "fxgraph", env)


# --- the whole command -------------------------------------------------------------------


def patched_site(lab: Lab, **caches: list[str]) -> Site:
    given = {kind.replace("_", "-"): names for kind, names in caches.items()}
    lab.bundle("kernel", {"bolt-kernels": lab.edit(KERNEL)}, caches=given)
    return lab.site(BOLT)


def test_caches_of_several_kinds_go_on_apply_and_on_revert(lab: Lab) -> None:
    """What was built from the other sources is never put back."""
    site = patched_site(lab, tvm_ffi=["sgl_kernel_jit_norm"], triton=["rms"], flashinfer_jit=["n"])
    home = Path(lab.child_env["HOME"])
    folders = {
        ".cache/tvm-ffi/sgl_kernel_jit_norm_01": "m.so",
        ".triton/cache/ABC": "rms.cubin",
        ".cache/flashinfer/0.6.3/90a/cached_ops/n": "n.so",
    }
    for text, command in (("pristine", ("apply", "kernel")), ("patched", ("revert", "--all"))):
        for folder, file in folders.items():
            (home / folder).mkdir(parents=True, exist_ok=True)
            (home / folder / file).write_text(text)
        answer = lab.json(site, *command)
        assert sorted(answer["caches"]) == sorted(str(home / folder) for folder in folders)
        assert not any((home / folder).exists() for folder in folders)
    kept = [path for path in home.rglob("*") if path.is_file() and "patchkit-aside" in str(path)]
    assert sorted(path.read_text() for path in kept) == ["patched"] * 3 + ["pristine"] * 3


def test_a_cache_that_leads_out_is_refused_before_anything_changes(lab: Lab) -> None:
    site = patched_site(lab, flashinfer_jit=["n"])
    home = Path(lab.child_env["HOME"])
    lay(lab.base, "outside/90a/cached_ops/n")
    (home / ".cache/flashinfer").mkdir(parents=True)
    (home / ".cache/flashinfer/0.6.3").symlink_to(lab.base / "outside")
    before, outside = site.picture(), releases.snapshot(lab.base / "outside")
    result = lab.run(site, "apply", "kernel", check=3)
    assert "is a symlink" in result.stderr and "hint:" in result.stderr
    assert site.differences(before) == []
    assert releases.diff_snapshots(outside, releases.snapshot(lab.base / "outside")) == []


def test_a_cache_of_somebody_else_is_an_error_before_anything_changes(lab: Lab) -> None:
    """A root that may be read and not written."""
    from tests.support.lab import unprivileged

    prefix = unprivileged()
    site = patched_site(lab, tvm_ffi=["k"])
    root = lab.folder("cache")
    lay(root, "k_0123")
    root.chmod(0o555)
    before = site.picture()
    env = {"TVM_FFI_CACHE_DIR": str(root)}
    result = lab.run(site, "apply", "kernel", check=4, env=env, prefix=prefix)
    assert str(root) in result.stderr
    assert site.differences(before) == []
    root.chmod(0o755)
    lab.run(site, "apply", "kernel", env=env, prefix=prefix)
    assert not (root / "k_0123").exists()


def test_a_cache_over_two_devices_is_set_aside_on_each(lab: Lab) -> None:
    shm = Path("/dev/shm")
    needs_root()
    if not shm.is_dir():
        pytest.skip("needs a second file system in /dev/shm")
    site = patched_site(lab, flashinfer_jit=["n"])
    top = Path(lab.child_env["HOME"]) / ".cache/flashinfer/0.6.3"
    top.mkdir(parents=True)
    script = (
        f'mount -t tmpfs none "{top}" && mkdir -p "{top}/90a/cached_ops/n" && "$@" && '
        f'ls -R "{top}"; umount "{top}"'
    )
    prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    result = lab.run(site, "apply", "kernel", prefix=prefix)
    assert "90a/cached_ops/n-pristine" in result.stdout
    assert "could not be set aside" not in result.stderr
