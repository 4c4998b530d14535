"""At the start of an interpreter: are the patched files of this environment as patchkit left
them?  Says so on standard error where they are not; with PATCHKIT_GUARD=fail the interpreter
ends with exit status 1, with PATCHKIT_GUARD=off nothing is looked at.  Changes nothing.

Put here by ``patchkit guard install``; ``patchkit guard uninstall`` takes it away.  It stands
by itself, in whatever Python the environment has, and imports nothing that a start has not
imported already, since every start pays for it.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_OWN = os.path.join(_HERE, ".patchkit")
#: Who mends an environment must be able to start in it.
_MENDERS = ("patchkit", "pip", "pip3")
_SHOWN = 3
#: How lines end that tell of a package manager's doing, and not of an edit.
_TAKEN_AWAY = ("(reinstalled or restored by someone else)", "is not installed any more")
#: What PATCHKIT_GUARD may say; nothing means a warning.
_KNOWN = ("", "fail", "off")


def _main() -> None:
    how = os.environ.get("PATCHKIT_GUARD", "")
    if how == "off" or not os.path.lexists(os.path.join(_OWN, "state.json")):
        return
    if _program() in _MENDERS:
        return
    names = "NAME"
    try:
        names, wrong = _look()
    except Exception as error:  # noqa: BLE001 - whatever it is, the start is not its business
        wrong = [f"it cannot be checked: {type(error).__name__}: {error}"]
    unknown = f"patchkit guard: PATCHKIT_GUARD={how!r} is neither 'fail' nor 'off': it warns only"
    lines = [] if how in _KNOWN else [unknown]
    if wrong:
        lines += _described(names, wrong)
    elif not lines:
        return
    # Tools start an interpreter isolated (-I) to look at it: nothing is launched then.
    fails = bool(wrong) and how == "fail" and not sys.flags.isolated
    if fails:
        lines.append("PATCHKIT_GUARD=fail: this interpreter ends here")
    try:
        sys.stderr.write("\n".join([*lines, ""]))
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # a closed standard error
    if fails:
        os._exit(1)  # site goes on after any exception


def _described(names: str, wrong: "list[str]") -> "list[str]":
    lines = [f"patchkit guard: {_HERE} is not as patchkit left it:"]
    lines += [f"  {line}" for line in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        lines.append(f"  and {len(wrong) - _SHOWN} more")
    # apply refuses what somebody edited: then there is more to do, and verify says what.
    if all(line.endswith(_TAKEN_AWAY) for line in wrong):
        how_mended = f"; patchkit sync, or patchkit apply {names}, mends it"
    else:
        how_mended = ", and what mends it"
    lines.append(f"hint: patchkit verify says more{how_mended}")
    return lines


def _program() -> str:
    """The module or script that is run, as far as the command line says it."""
    words = iter(getattr(sys, "orig_argv", [])[1:])  # from Python 3.10 on
    for word in words:
        if word == "-m":
            return str(next(words, ""))
        if word in ("-W", "-X"):
            next(words, "")
        elif not word.startswith("-"):
            return str(os.path.basename(word))
        elif word == "-c":
            return ""
    return ""


def _look() -> "tuple[str, list[str]]":
    """The names of the bundles, and a line for each thing that is wrong."""
    if any(os.path.lexists(os.path.join(_OWN, name)) for name in ("journal.json", "staged")):
        return "NAME", ["a change is under way or was interrupted (patchkit recover)"]
    entries = _list() or _entries()
    wrong = []
    for entry in entries[1:]:
        if entry[0] == b"D":
            info = os.path.join(_HERE, os.fsdecode(entry[2]))
            if info.endswith(".dist-info"):
                info = os.path.join(info, "METADATA")
            if not os.path.lexists(info):
                wrong.append(f"{entry[1].decode()}, which was patched, is not installed any more")
        else:
            what = _difference(entry)
            if what:
                wrong.append(f"{os.fsdecode(entry[5])} {what}")
    return os.fsdecode(entries[0][2]), wrong


def _list() -> "list[list[bytes]] | None":
    """The check list; None where there is none of this very state."""
    with open(os.path.join(_OWN, "state.json"), "rb") as file:
        checksum = file.read(78)[14:78]
    try:
        with open(os.path.join(_OWN, "guard"), "rb") as file:
            entries = [entry.split(b"\0") for entry in file.read()[:-1].split(b"\0\n\0")]
    except OSError:
        return None
    return entries if entries[0][:2] == [b"patchkit guard 1", checksum] else None


def _entries() -> "list[list[bytes]]":
    """What the list would hold, from the state itself: slower, and right whoever wrote it."""
    import json

    with open(os.path.join(_OWN, "state.json"), "rb") as file:
        state = json.loads(file.read().decode("ascii"))
    names = " ".join(one["name"] for one in state["bundles"])
    entries = [[b"", b"", os.fsencode(names)]]
    for dist in state["distributions"]:
        if dist["dist_info"] is not None:
            release = f"{dist['name']} {dist['version']}".encode()
            entries.append([b"D", release, os.fsencode(dist["dist_info"])])
    for one in state["files"]:
        root = state["roots"][one["root"]]
        path = one["path"] if root == "." else f"{root}/{one['path']}"
        after = one["after"] or {"kind": "-", "mode": 0, "sha256": "-"}
        before = one["before"] or {"sha256": "-"}
        kind, mode = after["kind"][:1].encode(), b"%o" % after["mode"]
        digests = [after["sha256"].encode(), before["sha256"].encode()]
        entries.append([kind, mode, b"-", *digests, os.fsencode(path)])
    return entries


def _difference(entry: "list[bytes]") -> "str | None":
    """What is wrong with a file; None where nothing is."""
    kind, mode, stamp, after, before, name = entry
    path = os.path.join(_HERE, os.fsdecode(name))
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None if kind == b"-" else "is missing"
    if kind == b"-":
        return "is there again, although a patch removed it"
    is_link = status.st_mode & 0o170000 == 0o120000
    numbers = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
    same_mode = is_link or b"%o" % (status.st_mode & 0o7777) == mode
    if same_mode and " ".join(map(str, numbers)).encode() == stamp:
        return None
    if is_link:
        data = os.fsencode(os.readlink(path))
    elif status.st_mode & 0o170000 != 0o100000:
        return "is no file any more"
    else:
        with open(path, "rb") as file:
            data = file.read()
    found = _sha256(data)
    if found == before != after:
        return "is as installed, unpatched (reinstalled or restored by someone else)"
    if found != after or is_link != (kind == b"s"):
        return "differs from what patchkit wrote"
    return None if same_mode else "has another mode"


def _sha256(data: bytes) -> bytes:
    """Its digest in hexadecimal; hashlib would load OpenSSL."""
    for name in ("_sha2", "_sha256", "hashlib"):  # from Python 3.12 on, and before
        try:
            digest = __import__(name).sha256(data).hexdigest()
        except ImportError:
            continue
        return str(digest).encode()
    return b""


_main()
