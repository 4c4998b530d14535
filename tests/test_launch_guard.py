"""The guard at interpreter start: it says so, or ends the start, and is no part of the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli, MakeVenv
from tests.support.lab import (
    ACME,
    ALPHA,
    BETA,
    DELTA,
    STATE,
    Lab,
    Site,
    needs_root,
    needs_tool,
    unprivileged,
)

pytest_plugins = ("tests.support.fixtures",)

MODULE, PTH = "_patchkit_guard.py", "patchkit-guard.pth"


@pytest.fixture
def site(lab: Lab) -> Site:
    """Patched, with the guard."""
    made = lab.venv()
    lab.bundle("b", {"acme": lab.edit(ALPHA), "bolt-kernels": lab.edit(DELTA)})
    lab.bundle("other", {"acme": lab.edit(BETA)})
    lab.run(made, "apply", "b")
    lab.run(made, "guard", "install")
    return made


def begin(
    lab: Lab, site: Site, *words: str, guard: str | None = None, prefix: tuple[str, ...] = ()
) -> tuple[int, str, str]:
    """Start the environment's interpreter: exit code, standard output, standard error."""
    env = {**lab.child_env, **({} if guard is None else {"PATCHKIT_GUARD": guard})}
    done = subprocess.run(
        [*prefix, str(site.python), *(words or ("-c", "print('started')"))],
        env=env,
        cwd=lab.base,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


STARTED = (0, "started\n", "")


def test_it_is_silent_where_all_is_well(lab: Lab, site: Site) -> None:
    assert begin(lab, site) == begin(lab, site, guard="fail") == STARTED


def test_it_warns_and_the_interpreter_starts(lab: Lab, site: Site) -> None:
    (site / ALPHA[0]).write_text("x = 1\n")
    code, out, err = begin(lab, site)
    assert (code, out) == STARTED[:2]
    assert f"{ALPHA[0]} differs from what patchkit wrote" in err
    assert "hint: patchkit verify" in err


def test_apply_is_named_only_where_it_mends(lab: Lab, site: Site) -> None:
    """It refuses an edit, and puts the patch on again after a reinstall."""
    lab.install(site, ACME, options=["--reinstall"])
    assert "patchkit apply b, mends it" in begin(lab, site)[2]
    (site / DELTA[0]).write_text("x = 1\n")
    err = begin(lab, site)[2]
    assert "patchkit apply" not in err and "verify says more, and what mends it" in err


def test_a_misspelt_setting_is_said_and_only_warns(lab: Lab, site: Site) -> None:
    code, out, err = begin(lab, site, guard="Fail")
    assert (code, out) == STARTED[:2] and "PATCHKIT_GUARD='Fail' is neither" in err
    (site / ALPHA[0]).unlink()
    code, out, err = begin(lab, site, guard="Fail")
    assert (code, out) == STARTED[:2] and f"{ALPHA[0]} is missing" in err


def test_with_fail_the_interpreter_ends(lab: Lab, site: Site) -> None:
    (site / ALPHA[0]).unlink()
    code, out, err = begin(lab, site, guard="fail")
    assert (code, out) == (1, "") and f"{ALPHA[0]} is missing" in err


def test_with_off_nothing_is_looked_at(lab: Lab, site: Site) -> None:
    (site / ALPHA[0]).unlink()
    assert begin(lab, site, guard="off") == STARTED


def test_it_tells_a_reinstall_from_an_edit(lab: Lab, site: Site) -> None:
    lab.install(site, ACME, options=["--reinstall"])
    assert f"{ALPHA[0]} is as installed, unpatched" in begin(lab, site)[2]


def test_it_tells_an_uninstall_and_another_release(lab: Lab, site: Site) -> None:
    shutil.rmtree(site / ACME.info)
    assert "acme 1.0, which was patched, is not installed any more" in begin(lab, site)[2]


def test_it_sees_what_sizes_and_times_do_not_show(lab: Lab, site: Site) -> None:
    """Written in place, of the same size, with its old time."""
    path = site / ALPHA[0]
    status = path.stat()
    path.write_text(site.text(ALPHA[0]).replace("1030", "1031"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "differs" in begin(lab, site)[2]


def test_the_same_bytes_in_another_file_are_all_right(lab: Lab, site: Site) -> None:
    """A copied environment, a backup that came back."""
    path = site / ALPHA[0]
    data, mode = path.read_bytes(), path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)
    assert begin(lab, site, guard="fail") == STARTED
    path.chmod(0o600)
    assert "has another mode" in begin(lab, site)[2]


def test_it_follows_every_change_of_the_set(lab: Lab, site: Site) -> None:
    for args in (("apply", "other"), ("revert", "b"), ("revert", "--all"), ("apply", "b")):
        lab.run(site, *args)
        assert begin(lab, site, guard="fail") == STARTED, args
    (site / DELTA[0]).write_text("x = 1\n")
    assert begin(lab, site, guard="fail")[0] == 1


def test_a_list_of_another_state_is_not_believed(lab: Lab, site: Site) -> None:
    """A kill between the record and the list; an older patchkit that knows no list."""
    old = (site / STATE / "guard").read_bytes()
    lab.run(site, "apply", "other")
    for broken in (old, None, b"", b"\0\n\0"):
        (site / STATE / "guard").unlink()
        if broken is not None:
            (site / STATE / "guard").write_bytes(broken)
        else:
            assert begin(lab, site, guard="fail") == STARTED
            (site / STATE / "guard").write_bytes(old)
        assert begin(lab, site, guard="fail") == STARTED
    saved = site.text(BETA[0])
    (site / BETA[0]).write_text("x = 1\n")
    assert f"{BETA[0]} differs" in begin(lab, site)[2]
    (site / BETA[0]).write_text(saved)


def test_an_interrupted_change_is_named(lab: Lab, site: Site) -> None:
    (site / STATE / "staged").mkdir()
    code, _, err = begin(lab, site, guard="fail")
    assert code == 1 and "patchkit recover" in err


def test_a_damaged_record_is_named_and_never_a_traceback(lab: Lab, site: Site) -> None:
    (site / STATE / "state.json").write_text("{")
    code, _, err = begin(lab, site)
    assert code == 0 and "cannot be checked" in err and "Traceback" not in err
    assert begin(lab, site, guard="fail")[0] == 1


def test_it_breaks_nothing_where_patchkit_s_files_are_gone(lab: Lab, site: Site) -> None:
    saved = (site / MODULE).read_bytes()
    (site / MODULE).unlink()
    shutil.rmtree(site / "__pycache__", ignore_errors=True)
    assert begin(lab, site, guard="fail") == STARTED
    (site / MODULE).write_bytes(saved)
    shutil.rmtree(site / STATE)
    assert begin(lab, site, guard="fail") == STARTED


def test_whoever_mends_the_environment_may_start_in_it(lab: Lab, site: Site) -> None:
    (site / ALPHA[0]).unlink()
    (site / "patchkit").mkdir()
    (site / "patchkit" / "__main__.py").write_text("print('started')\n")
    for words in (("-m", "patchkit"), ("-W", "error", "-m", "patchkit", "sync")):
        assert begin(lab, site, *words, guard="fail") == STARTED
    script = lab.folder("bin") / "server"
    script.write_text("print('started')\n")
    assert begin(lab, site, str(script), "-m", "patchkit", guard="fail")[0] == 1
    # Tools look at an interpreter with -I: they are told, and not stopped.
    code, out, err = begin(lab, site, "-I", "-c", "print('started')", guard="fail")
    assert (code, out) == STARTED[:2] and "is missing" in err


def test_on_a_read_only_file_system_as_an_unprivileged_user(lab: Lab, site: Site) -> None:
    needs_root()
    needs_tool("unshare", "mount", "setpriv")
    script = (
        f'mount --bind "{site.root}" "{site.root}" && '
        f'mount -o remount,ro,bind "{site.root}" && exec "$@"'
    )
    prefix = ("unshare", "-m", "sh", "-c", script, "sh", *unprivileged())
    assert begin(lab, site, guard="fail", prefix=prefix) == STARTED
    (site / ALPHA[0]).write_text("x = 1\n")
    assert begin(lab, site, guard="fail", prefix=prefix)[0] == 1


def test_it_changes_nothing(lab: Lab, site: Site) -> None:
    begin(lab, site)  # byte-code of the guard itself
    before = site.picture()
    begin(lab, site)
    (site / ALPHA[0]).rename(site / "moved")
    begin(lab, site)
    (site / "moved").rename(site / ALPHA[0])
    assert site.differences(before) == []


# --- it comes and goes without a trace ---------------------------------------------------


def test_uninstall_leaves_nothing_behind(lab: Lab) -> None:
    site = lab.venv()
    before = site.picture()
    assert "installed" in lab.run(site, "guard", "install").stdout
    assert lab.json(site, "guard", "status")["installed"] is True
    assert begin(lab, site) == STARTED
    assert lab.json(site, "guard", "install")["changed"] is False
    assert lab.json(site, "guard", "uninstall")["changed"] is True
    assert site.differences(before) == []
    assert lab.json(site, "guard", "uninstall")["changed"] is False
    assert lab.json(site, "guard", "status")["installed"] is False


def test_apply_and_revert_with_the_guard_leave_what_was_there(lab: Lab) -> None:
    site = lab.venv()
    lab.bundle("b", {"acme": lab.edit(ALPHA)})
    lab.run(site, "guard", "install")
    before = site.picture()
    lab.run(site, "apply", "b")
    lab.run(site, "verify", "b")
    result = lab.run(site, "revert", "--all")
    assert "patchkit guard uninstall" in result.stderr
    assert site.differences(before) == []
    lab.run(site, "verify", "--pristine")


def test_uninstall_with_a_set_applied_leaves_the_set(lab: Lab, site: Site) -> None:
    lab.run(site, "guard", "uninstall")
    assert not (site / STATE / "guard").exists() and not (site / MODULE).exists()
    lab.run(site, "verify", "b")
    (site / ALPHA[0]).unlink()
    assert begin(lab, site, guard="fail") == STARTED


def test_install_mends_a_guard_of_another_version(lab: Lab, site: Site) -> None:
    (site / MODULE).write_text("raise SystemExit(3)\n")
    assert lab.json(site, "guard", "status")["current"] is False
    assert lab.json(site, "guard", "install")["changed"] is True
    assert lab.json(site, "guard", "status")["current"] is True
    assert begin(lab, site) == STARTED


def test_a_checkout_is_no_place_for_it(lab: Lab) -> None:
    folder = lab.folder("checkout")
    (folder / "a.py").write_text("x = 1\n")
    lab.git(folder, "init", "--quiet")
    lab.git(folder, "add", "a.py")
    result = lab.run(Site(folder), "guard", "install", check=3)
    assert "--python" in result.stderr


def test_it_stands_without_patchkit_in_any_python(make_venv: MakeVenv, cli: Cli) -> None:
    """The environment has no patchkit; nothing is imported that a start does not import, with
    whatever ``.pth`` file there is."""
    venv = make_venv()
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "other.pth").write_text("# nothing\n")
    cli("--python", venv, "apply", "sm120-fusion")
    loaded = []
    for _ in range(2):
        done = subprocess.run(
            [venv / "bin" / "python", "-c", "import sys; print(*sorted(sys.modules))"],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        loaded.append(set(done.stdout.split()))
        cli("--python", venv, "guard", "install")
    assert loaded[1] - loaded[0] == {"_patchkit_guard"}


def test_its_source_is_what_old_interpreters_read() -> None:
    """No syntax later than Python 3.6, which the environment may have."""
    import ast

    import patchkit.launch.guard

    source = (Path(patchkit.launch.guard.__file__).parent / MODULE).read_bytes()
    ast.parse(source, feature_version=(3, 7))
    assert b"from __future__" not in source
    assert sys.version_info >= (3, 10)
