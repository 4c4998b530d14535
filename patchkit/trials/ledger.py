"""The ledger: a folder with one JSON file a trial.

Owns the names of the files and how one is written: whole, by a rename, with no lock.  People and
nodes add files of different names, so that git merges what they did without a conflict.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.fsio import Root, make_root, names_in, read_plain

from .record import RecordError, Trial, Verdict, is_name, parse, render

#: The most bytes of one record; the log is a file of its own.
MAX_RECORD = 16 * 1024 * 1024
VARIABLE = "PATCHKIT_TRIALS"
FOLDER = "trials"
_END = ".json"
_RESERVE = "reserve"
#: Bytes that the record of a trial takes at most, as a rule: without its runs, and for each.
_FORM, _FORM_OF_RUN = 32 * 1024, 8 * 1024


class Listed(NamedTuple):
    """What a ledger holds, in the order tried; ``problems`` are of files that are no records."""

    trials: list[Trial]
    problems: list[PatchkitError]


class Ledger:
    """A ledger at a path, which need not be there yet."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def exists(self) -> bool:
        """Whether there is a folder."""
        return os.path.isdir(self.folder)

    def path(self, identifier: str) -> str:
        """The file of a trial."""
        return os.path.join(self.folder, identifier + _END)

    def write(self, trial: Trial) -> None:
        """Write a record whole: aside, synced, renamed; on a full disk in the room that is kept
        for its last form, if this is one."""
        root = make_root(self.folder)
        try:
            root.replace(trial.id + _END, render(trial))
        except OSError as error:
            if trial.status == "running" or not is_full(error) or not self.release(trial.id):
                raise
            root.replace(trial.id + _END, render(trial))
        finally:
            root.close()

    def reserve(self, identifier: str, runs: int) -> None:
        """Keep room for the last form of a record, beside the logs, which may fill the disk: else
        it would say for ever that its trial is under way."""
        root = make_root(os.path.join(self.folder, LOGS))
        try:
            root.mkdir(identifier)
            root.reserve(f"{identifier}/{_RESERVE}", _FORM + runs * _FORM_OF_RUN)
        except OSError:
            self.release(identifier)
            raise
        finally:
            root.close()

    def release(self, identifier: str) -> bool:
        """Give that room back; whether there was any."""
        try:
            root = Root(os.path.join(self.folder, LOGS))
        except OSError:
            return False
        try:
            had = _RESERVE in root.names(identifier)
            root.unlink(f"{identifier}/{_RESERVE}")
            root.rmdir(identifier)  # where no run has a log
            return had
        except OSError:
            return False
        finally:
            root.close()

    def remove(self, identifier: str) -> None:
        """Remove a record and its logs.  Raises :class:`OSError`."""
        root = make_root(self.folder)
        try:
            logs = f"{LOGS}/{identifier}"
            for name in root.names(logs):
                root.unlink(f"{logs}/{name}")
            root.rmdir(logs)
            root.unlink(identifier + _END)
        finally:
            root.close()

    def read(self, identifier: str) -> Trial:
        """A trial by its id.  Raises :class:`OSError` and :class:`RecordError`."""
        path = self.path(identifier)
        trial = parse(read_plain(path, MAX_RECORD), path)
        if trial.id != identifier:
            raise RecordError(f"{path} is the record of {trial.id}")
        return trial

    def ids(self) -> list[str]:
        """The ids of all records, in the order in which they were made."""
        # A name that begins with a dot is an editor's, or a file system's own.
        names = (x for x in names_in(self.folder) if x.endswith(_END) and not x.startswith("."))
        return sorted((x[: -len(_END)] for x in names), key=_order)

    def list(self, keep: Callable[[bytes], bool] | None = None) -> Listed:
        """Every trial; ``keep`` looks at the bytes first, since it costs less to pass one over
        than to read it."""
        found: list[Trial] = []
        problems: list[PatchkitError] = []
        for identifier in self.ids():
            path = self.path(identifier)
            try:
                data = read_plain(path, MAX_RECORD)
                if keep is not None and not keep(data):
                    continue
                trial = parse(data, path)
                if trial.id != identifier:
                    raise RecordError(f"{path} is the record of {trial.id}")
                found.append(trial)
            except FileNotFoundError:
                continue  # removed meanwhile
            except PatchkitError as error:
                problems.append(error)
            except OSError as error:
                problems.append(RecordError(f"{path} cannot be read: {error.strerror}"))
        return Listed(found, problems)

    def find(self, text: str) -> Trial:
        """The trial that an id, the beginning of one, its last six digits or a name means; of
        several of one name the latest."""
        ids = self.ids()
        if text in ids:
            return self.read(text)
        named = [one for one in ids if _name(one) == text]
        if named:
            return self.read(named[-1])
        begun = [one for one in ids if one.startswith(text) or one.rpartition("-")[2] == text]
        if len(begun) == 1:
            return self.read(begun[0])
        raise Refused(
            f"{text} means {len(begun)} trials" if begun else f"{self.folder} has no trial {text}",
            code="ambiguous-trial" if begun else "unknown-trial",
            detail=tuple(begun[:20]),
            hint="patchkit trial list shows them",
        )


#: Below the ledger: a folder for each trial with the logs of its runs.
LOGS = "logs"


def _name(identifier: str) -> str:
    return identifier[16:-7]


def _order(identifier: str) -> tuple[str, str]:
    """By the second, and by the digits behind the name, which begin with the part of it."""
    return identifier[:15], identifier[-6:]


def new_id(name: str, at: float | None = None) -> str:
    """An id for a trial that begins now.  The last six digits are the 256th of the second (two),
    so that trials of one second stay in order, and drawn by lot (four)."""
    if not is_name(name):
        raise UsageError(
            f"{name!r} cannot be the name of a trial: it is a part of a file's name",
            hint="use letters, digits, dots, dashes and underscores",
        )
    seconds = time.time() if at is None else at
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
    return f"{stamp}-{name}-{int(seconds % 1 * 256):02x}{os.urandom(2).hex()}"


def now(at: float | None = None) -> str:
    """The time as a record has it: ISO 8601, UTC, milliseconds."""
    seconds = time.time() if at is None else at
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"


def place(given: str | None, environ: Mapping[str, str], cwd: str, bundles: str | None) -> str:
    """Where the ledger is: ``--trials``, else ``PATCHKIT_TRIALS``, else ``trials/`` of the bundle
    directory (``bundles``; None where that is nobody's to write into)."""
    named = given or environ.get(VARIABLE)
    if named:
        return os.path.join(cwd, os.path.expanduser(named))
    if bundles is None:
        raise UsageError(
            "there is no place for the ledger: the bundle directory is not one to write into",
            hint=f"name a folder: --trials DIR, or {VARIABLE}",
        )
    return os.path.join(bundles, FOLDER)


def is_full(error: OSError) -> bool:
    """Whether an error says that there is no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def interrupt(path: str) -> bool:
    """Mark the record of a trial that died; whether it was one that ran."""
    folder, name = os.path.split(path)
    ledger = Ledger(folder)
    identifier = name.removesuffix(_END)
    ledger.release(identifier)
    trial = ledger.read(identifier)
    if trial.status != "running":
        return False
    ledger.write(trial._replace(status="interrupted", ended=now()))
    return True


def judged(trial: Trial, verdict: Verdict) -> Trial:
    """A trial with its verdict, stamped with the time where it has none."""
    return trial._replace(verdict=verdict if verdict.at else verdict._replace(at=now()))
