"""``ansible-test sanity`` on the collection, and the rollout on eight nodes.

    python3 dev.py nodes [--no-sanity] [PYTEST ARGUMENTS]

The exit code is 1 where anything failed, and where the machine lacks what the nodes need: here
nothing is skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import clean_environment
from tests.nodes.ansible import BESIDE, COLLECTION
from tests.releases import BUILD, ROOT

#: Programs, and the packages of Debian that have them.
NEEDED = {
    "/usr/sbin/sshd": "openssh-server",
    "ssh": "openssh-client",
    "strace": "strace",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
#: ansible-test fetches this program from a host of its own, and takes one that is there: this
#: one asks the package index, as the machine's pip is set up.
_BOOTSTRAP = """\
import subprocess, sys
python = [sys.executable, "-I", "-m"]
subprocess.run([*python, "ensurepip"], check=True, stdout=subprocess.DEVNULL)
wanted = [word for word in sys.argv[1:] if "==" in word]
subprocess.run([*python, "pip", "install", "--quiet", *wanted], check=True)
"""


def main() -> int:
    """Sanity, then the nodes; whatever the first says, the second is run."""
    parser = argparse.ArgumentParser(prog="dev.py nodes", description=__doc__)
    parser.add_argument("--no-sanity", action="store_true")
    arguments, rest = parser.parse_known_args()
    missing = sorted({p for name, p in NEEDED.items() if shutil.which(name) is None})
    if missing:
        print(f"missing packages of Debian: apt-get install {' '.join(missing)}")
        return 1
    if os.geteuid() != 0:
        print("the nodes are namespaces with mounts of their own: run it as root")
        return 1
    good = arguments.no_sanity or sanity(BUILD / "nodes")
    words = ["-q", "-p", "no:randomly", "--durations=0", "--durations-min=5"]
    tests = [ROOT / "tests" / "nodes" / name for name in ("test_module.py", "rollout.py")]
    done = subprocess.run([sys.executable, "-m", "pytest", *words, *tests, *rest], check=False)
    return 0 if good and done.returncode == 0 else 1


def sanity(base: Path) -> bool:
    """Every test of ``ansible-test sanity`` that runs here, on a copy where it wants to be."""
    home, place = base / "home", base / "ansible_collections" / "patchkit" / "patchkit"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(COLLECTION, place, ignore=shutil.ignore_patterns("__pycache__"))
    env = clean_environment(home, PATH=f"{BESIDE}:{os.environ['PATH']}")
    for words in (["init", "-q"], ["add", "-A"]):  # it tests what git tracks
        subprocess.run(["git", "-C", place, *words], env=env, check=True)
    program = BESIDE / "python"
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.run([program, "-c", code], capture_output=True, text=True, check=True)
    words = [str(BESIDE / "ansible-test"), "sanity", "--python", version.stdout.strip()]
    bootstrap = home / ".ansible" / "test" / "cache"
    bootstrap.mkdir(parents=True, exist_ok=True)
    for known in _pips():
        (bootstrap / f"get_pip_{known}.py").write_text(_BOOTSTRAP)
    done = subprocess.run(
        words,
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ran = re.findall(r'Running sanity test "([^"]+)"', done.stdout)
    lacking = re.findall(r"Required program \"([^\"]+)\" not found", done.stdout)
    if done.returncode:
        print(done.stdout)
    print(f"ansible-test sanity: {'ok' if done.returncode == 0 else 'FAILED'}: {', '.join(ran)}")
    if lacking:
        print(f"ansible-test sanity: not looked at, for want of a program: {', '.join(lacking)}")
    return done.returncode == 0


def _pips() -> set[str]:
    """The releases of pip that this ansible-test bootstraps, as in the names of its cache."""
    found: set[str] = set()
    for path in BESIDE.parent.glob("lib/python*/site-packages/ansible_test/_internal/*.py"):
        if path.name == "python_requirements.py":
            found.update(re.findall(r"['\"](\d+\.\d+(?:\.\d+)?)['\"]", path.read_text()))
    return {one.replace(".", "_") for one in found}


if __name__ == "__main__":
    sys.exit(main())
