"""What a record tells of the environment variables and the command: what matters, and no
secret.  Pure.

Owns which variables change what an inference server does, and what looks like a secret: by its
name, by the marks of known tokens, and by its entropy.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

#: What stands in place of a secret.
HIDDEN = "(hidden)"
_MATTER = re.compile(
    r"(CUDA|NCCL|NV|SGLANG|SGL|VLLM|FLASHINFER|TORCH|PYTORCH|TRITON|OMP|MKL|OPENBLAS|KMP|UCX|GLOO"
    r"|MSCCL|MSCCLPP|HF|TRANSFORMERS|TOKENIZERS|XLA|ROCM|HIP|HSA|RAY|DG|DEEPEP)_\w+"
    r"|PYTHON(PATH|OPTIMIZE|HASHSEED|MALLOC|UNBUFFERED)|LD_(LIBRARY_PATH|PRELOAD)"
    r"|MALLOC_\w+|CUDA_HOME|CUDACXX|CC|CXX|MAX_JOBS|CONDA_DEFAULT_ENV"
)
#: Words that make a name a secret's wherever they stand in it; others at its end alone, for there
#: are a token map, a key cache and a session limit too.
_NAME = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|API[_-]?KEY|ACCESS[_-]?KEY|PRIVATE[_-]?KEY|CREDENTIAL"
    r"|AUTHORIZATION|BEARER|COOKIE|WEBHOOK|SSHPASS"
    r"|(^|[_-])(PASS|CREDS?|AUTH|DSN)([_-]|$)"
    r"|(^|[_-]|HF)(TOKEN|KEYS?|SIGNATURE|SESSION|PAT)([_-]?\d+)?$|[_-]PWD$",
    re.IGNORECASE,
)
#: Values that say how, and are no secret.
_PLAIN = re.compile(
    r"-?[\d.]+|true|false|yes|no|on|off|none|null|auto|default|enabled?|disabled?", re.IGNORECASE
)
#: Names of what is long and random, and no secret: a revision of a model, a digest.
_KNOWN = re.compile(
    r"(^|[_-])(REVISION|REV|COMMIT|SHA\d*|DIGEST|HASH|CHECKSUM|UUID)([_-]|$)", re.IGNORECASE
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MARK = re.compile(
    r"(hf_|sk-|gh[oprsu]_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|nvapi-|eyJ)[A-Za-z0-9._-]{10,}"
)
#: user:password@ of an address; a store may have no users (redis).
_LOGIN = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]+(?=@)")
#: A value with its name: ``NAME=VALUE``, ``--name=VALUE``, ``Name: VALUE``, ``--name VALUE``,
#: ``"name": VALUE``.
_GIVEN = re.compile(
    r"(?<![\w-])(?:(?P<name>-{0,2}[A-Za-z_][\w-]*)(?P<by>=|[\"']?: ?(?!//))"
    r"|(?P<option>--[A-Za-z][\w-]*)(?P<gap> +))"
    r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s'\";&|]+)"
)
#: Options of curl and wget whose value is user:password.
_LOGINS = ("-u", "--user", "-U", "--proxy-user")
_ASSIGNED = re.compile(r"-{0,2}[A-Za-z_][\w-]*")
_AUTHORIZED = re.compile(r"\b(bearer|basic) +[^\s'\"]+", re.IGNORECASE)
# A run of signs that a token is made of; a path, a version or a word is cut by its signs.
_RUN = re.compile(r"[A-Za-z0-9+_=-]{20,}")
#: Bits a sign: random base64 of 20 signs has 4.1 on average, words and numbers with
#: separators less than 3.8; hexadecimal has at most 4 and needs 32 signs for a secret.
_BITS = 3.8
_HEX = re.compile(r"[0-9a-fA-F]{32,}")


def environment(variables: Mapping[str, str], always: Iterable[str] = ()) -> dict[str, str]:
    """The variables that matter, sorted, and those named; secrets are hidden."""
    named = set(always)
    return {
        key: clean(key, value)
        for key, value in sorted(variables.items())
        if key in named or _MATTER.fullmatch(key)
    }


def clean(name: str, value: str) -> str:
    """A variable's value as a record may have it."""
    if _NAME.search(name) and value and not _PLAIN.fullmatch(value):
        return HIDDEN
    if is_secret("" if _KNOWN.search(name) and not _MARK.search(value) else value):
        return HIDDEN
    return _LOGIN.sub(HIDDEN, value)


def command(words: Sequence[str]) -> tuple[str, ...]:
    """A command line as a record may have it."""
    out: list[str] = []
    for word in words:
        before = out[-1] if out else ""
        name, equals, value = word.partition("=")
        if equals and _ASSIGNED.fullmatch(name) and clean(name.lstrip("-"), value) == HIDDEN:
            word = f"{name}={HIDDEN}"
        elif before in _LOGINS and ":" in word:
            word = f"{word.partition(':')[0]}:{HIDDEN}"
        elif before.startswith("-") and "=" not in before and not word.startswith("-"):
            word = clean(before.lstrip("-"), word)
        out.append(_within(word))
    return tuple(out)


def _within(word: str) -> str:
    """A word, which may be an assignment or a whole line for a shell, without its secrets."""

    def given(found: re.Match[str]) -> str:
        name = found["name"] or found["option"]
        value = clean(name.lstrip("-"), found["value"])
        return f"{name}{found['by'] or found['gap']}{value}"

    word = _AUTHORIZED.sub(rf"\1 {HIDDEN}", word)
    return _LOGIN.sub(HIDDEN, _MARK.sub(HIDDEN, _GIVEN.sub(given, word)))


def secrets(variables: Mapping[str, str], *commands: Sequence[str]) -> list[str]:
    """The values of the variables that are secrets, and the words of commands that are, to be
    hidden in texts; the longest first, since one may be a part of another."""
    found = [value for key, value in variables.items() if clean(key, value) == HIDDEN]
    for words in commands:
        for word, told in zip(words, command(words), strict=True):
            if told.endswith(HIDDEN):
                found.append(word.removeprefix(told.removesuffix(HIDDEN)))
    return sorted({value for value in found if len(value) >= 8}, key=len, reverse=True)


def text(line: str, hidden: Iterable[str]) -> str:
    """A text without known secrets."""
    for value in hidden:
        line = line.replace(value, HIDDEN)
    return _LOGIN.sub(HIDDEN, _MARK.sub(HIDDEN, line))


def output(line: str, hidden: Iterable[str]) -> str:
    """A line of output without known secrets, nor what it names as one (``api_key='…'``)."""
    return _within(text(line, hidden))


def is_secret(value: str) -> bool:
    """Whether a text has the mark of a token in it, or a run of signs as random as one."""
    if _MARK.search(value):
        return True
    value = _UUID.sub("", value)
    return any(_is_random(run) for run in _RUN.findall(value))


def _is_random(run: str) -> bool:
    if _HEX.fullmatch(run):
        return entropy(run) > 3.0
    kinds = (any(map(test, run)) for test in (str.isdigit, str.isupper, str.islower))
    return all(kinds) and entropy(run) > _BITS and _changes(run) > len(run) / 4


def _changes(run: str) -> int:
    """How often small letters, capitals and digits follow each other: in random signs at every
    other one, in the name of a model (``Qwen3-235B-A22B-Instruct-2507``) at one in six.  A
    capital that begins a word is none."""
    kinds = [
        "d" if x.isdigit() else "u" if x.isupper() else "l" if x.islower() else "" for x in run
    ]
    pairs = pairwise(kinds)
    return sum(a != b and "" not in (a, b) and (a, b) != ("u", "l") for a, b in pairs)


def entropy(value: str) -> float:
    """Bits for each sign, by how often each one is there (Shannon)."""
    count = len(value)
    return -sum(n / count * math.log2(n / count) for n in Counter(value).values())
