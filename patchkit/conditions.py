"""Conditions over facts: ``cuda >= "13" or flashinfer-python >= "0.6.17"``.

Owns the grammar, the names that a condition may use, and what it means for given facts.
Facts come as a mapping from name to text; where they come from is not known here.

The grammar follows the markers of PEP 508::

    condition  = and_group ("or" and_group)*
    and_group  = item ("and" item)*
    item       = "(" condition ")" | comparison
    comparison = operand operator operand
    operator   = "==" | "!=" | "<" | "<=" | ">" | ">=" | "~=" | "in" | "not" "in"
    operand    = NAME | '"' text '"' | "'" text "'"

At least one side of a comparison is a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, Specifier
from packaging.version import Version

from .errors import Refused
from .names import normalise

#: Facts of a machine and of an environment: name → what it says, and in which form.
FACTS = {
    "os": "the operating system: linux, darwin",
    "distro": "the distribution of the operating system and its release: ubuntu 22.04",
    "kernel": "the release of the kernel: 6.8.0-60-generic",
    "machine": "the processor's architecture: x86_64, aarch64",
    "python": "the release of the environment's Python: 3.12.3",
    "driver": "the release of the NVIDIA driver: 590.48.01",
    "driver-cuda": "the newest CUDA that the driver runs: 13.1",
    "cuda": "the release of the CUDA toolkit that a JIT would use: 12.8",
    "cuda-source": "where that toolkit is: CUDA_HOME, PATH, /usr/local/cuda, wheels",
    "gpus": "the number of GPUs: 8",
    "gpu": "their names, each once",
    "sm": "their compute capability, the lowest where they differ: 12.0",
    "gpu-memory": "the memory of the smallest, in GiB: 95.6",
    "pcie-gen": "the PCIe generation that each can reach: 5",
    "pcie-width": "the PCIe lanes in use, the fewest where they differ: 16",
    "gpu-link": "the farthest way between two GPUs: NVLINK, PIX, PXB, PHB, NODE, SYS",
    "nvlink": "whether every two GPUs are joined by NVLink: true, false",
    "p2p": "whether every two GPUs reach each other's memory: true, false",
    "torch-cuda": "the CUDA that torch was built for: 12.8",
    "sgl-kernel-cuda": "the CUDA that sgl-kernel or sglang-kernel was built for: 13.0",
    "vllm-cuda": "the CUDA that vllm was built for",
    "flashinfer-jit-cache-cuda": "the CUDA that flashinfer-jit-cache was built for",
    "nccl": "the release of NCCL that torch loads, from its wheel: 2.27.5",
}

#: Distributions whose installed release is a fact, by normalised name.
PACKAGES = (
    *("torch", "triton", "sglang", "sgl-kernel", "sglang-kernel"),
    *("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"),
    *("vllm", "transformers", "mscclpp", "deep-ep", "deep-gemm", "flash-attn", "xformers"),
    *("numpy", "nvidia-nvshmem-cu12", "nvidia-nvshmem-cu13", "nvidia-cutlass-dsl"),
    *("apache-tvm-ffi", "tensorrt-llm"),
)

_NAMES = frozenset((*FACTS, *PACKAGES))
_ORDERED = ("<", "<=", ">", ">=", "~=")
#: Brackets in each other, beyond which a condition is nobody's own work.
_DEEPEST = 50
_LONGEST = 4000

_TOKENS = re.compile(
    r"""
      (?P<space>[ \t\r\n]+)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<operator><=|>=|==|!=|~=|<|>)
    | (?P<text>"[^"\r\n]*"|'[^'\r\n]*')
    | (?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)
    """,
    re.VERBOSE,
)
_LIST = re.compile(r"[,\s]+")


class Fact(NamedTuple):
    """One side of a comparison that names a fact."""

    name: str


class Text(NamedTuple):
    """One side of a comparison that stands there as it is."""

    text: str


Operand = Fact | Text


class Comparison(NamedTuple):
    """Two operands and what is asked of them."""

    left: Operand
    operator: str
    right: Operand


class Group(NamedTuple):
    """Two or more parts joined by one word: ``and`` or ``or``."""

    word: str
    parts: tuple[Node, ...]


Node = Comparison | Group


class ConditionError(Refused):
    """A text that is no condition; ``column`` counts characters from 1."""

    code = "condition"
    usual_hint = """an example: cuda >= "13" or (sm == "12.0" and nvlink == "true")"""

    def __init__(self, text: str, column: int, message: str, *, hint: str | None = None) -> None:
        pointer = " " * (column - 1) + "^"
        shown = (text, pointer) if text.isprintable() and len(text) <= 200 else ()
        super().__init__(
            f"the condition is wrong at column {column}: {message}",
            hint=hint,
            detail=shown,
            data={"condition": text, "column": column},
        )
        self.column = column


class Condition(NamedTuple):
    """A condition that was read.  ``str()`` gives it in one form, which reads as the same."""

    node: Node

    def __str__(self) -> str:
        return _written(self.node)

    @property
    def names(self) -> tuple[str, ...]:
        """The facts that it asks for, each once, in the order written."""
        return tuple(dict.fromkeys(_names(self.node)))

    def holds(self, facts: Mapping[str, str]) -> bool | None:
        """Whether it holds; None where facts that would decide it are not there.

        Three values, as SQL has them: ``or`` needs one side to be true, ``and`` needs one
        to be false, whatever the other is.

        >>> condition = parse('cuda >= "13" or nvlink == "true"')
        >>> condition.holds({"cuda": "13.0"}), condition.holds({"cuda": "12.8"})
        (True, None)
        """
        return _value(self.node, facts)


@lru_cache(maxsize=4096)
def parse(text: str) -> Condition:
    """The condition that a text stands for.

    Raises :class:`ConditionError` with the column, what was expected and what was found; for
    a name that is no fact, with the nearest one that is.
    """
    return _Parser(text).whole()


# -- reading ----------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


class _Parser:
    """Recursive descent over the tokens; every method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise self._error(1, f"it has {len(text)} characters, and {_LONGEST} are the most")
        self.tokens = list(self._split())
        self.place = 0
        self.depth = 0

    def _split(self) -> Iterator[_Token]:
        position = 0
        while position < len(self.text):
            match = _TOKENS.match(self.text, position)
            if match is None:
                sign = self.text[position]
                if sign in "\"'":
                    raise self._error(position + 1, f"the quotation mark {sign} is never closed")
                if sign == "=":
                    raise self._error(
                        position + 1, "expected an operator, found '='; equality is '=='"
                    )
                raise self._error(position + 1, f"{sign!r} has no place in a condition")
            kind = str(match.lastgroup)
            if kind == "name" and match.group() in ("and", "or", "in", "not"):
                kind = match.group()
            if kind != "space":
                yield _Token(kind, match.group(), position + 1)
            position = match.end()
        yield _Token("end", "", len(self.text) + 1)

    def _error(self, column: int, message: str, *, hint: str | None = None) -> ConditionError:
        return ConditionError(self.text, column, message, hint=hint)

    def _expected(self, what: str) -> ConditionError:
        token = self.tokens[self.place]
        found = "the end" if token.kind == "end" else repr(token.text)
        return self._error(token.column, f"expected {what}, found {found}")

    def _next_is(self, kind: str) -> bool:
        return self.tokens[self.place].kind == kind

    def _take(self) -> _Token:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def whole(self) -> Condition:
        node = self._joined("or")
        if not self._next_is("end"):
            raise self._expected("'and', 'or' or the end")
        return Condition(node)

    def _joined(self, word: str) -> Node:
        parts = [self._joined("and") if word == "or" else self._item()]
        while self._next_is(word):
            self._take()
            parts.append(self._joined("and") if word == "or" else self._item())
        return parts[0] if len(parts) == 1 else Group(word, tuple(parts))

    def _item(self) -> Node:
        if not self._next_is("open"):
            return self._comparison()
        opened = self._take()
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._error(opened.column, f"more than {_DEEPEST} brackets stand in each other")
        node = self._joined("or")
        if not self._next_is("close"):
            raise self._expected(f"'and', 'or' or the ')' for the '(' at column {opened.column}")
        self._take()
        self.depth -= 1
        return node

    def _comparison(self) -> Comparison:
        first = self.tokens[self.place]
        left = self._operand("the name of a fact, a text in quotation marks or '('")
        operator = self._operator()
        second = self.tokens[self.place]
        right = self._operand("the name of a fact or a text in quotation marks")
        if isinstance(left, Text) and isinstance(right, Text):
            raise self._error(
                first.column, "two texts are compared, and no fact", hint=_known_hint()
            )
        for side, token in ((left, first), (right, second)):
            if isinstance(side, Text):
                self._check_text(side.text, operator, token, is_left=token is first)
        return Comparison(left, operator, right)

    def _check_text(self, text: str, operator: str, token: _Token, *, is_left: bool) -> None:
        if not text and operator in ("in", "not in"):
            raise self._error(token.column, "the text is empty, which is in every other one")
        if operator not in _ORDERED:
            return
        if _version(text) is None:
            raise self._error(
                token.column,
                f"{operator} compares releases, and {text!r} is none (PEP 440)",
                hint="compare other texts by ==, != and in",
            )
        if operator == "~=" and not is_left:
            try:
                Specifier(f"~={text}")
            except InvalidSpecifier:
                message = f"~= needs a release of two parts or more, not {text!r}"
                raise self._error(token.column, message) from None

    def _operand(self, what: str) -> Operand:
        if self._next_is("text"):
            return Text(self._take().text[1:-1])
        if not self._next_is("name"):
            raise self._expected(what)
        token = self._take()
        name = normalise(token.text)
        if name in _NAMES:
            return Fact(name)
        if token.text[0].isdigit():
            raise self._error(
                token.column,
                f"expected {what}, found {token.text!r}",
                hint=f'put it in quotation marks: "{token.text}"',
            )
        nearest = _nearest(name)
        meant = f"; did you mean {nearest!r}?" if nearest else ""
        raise self._error(
            token.column, f"no fact is called {token.text!r}{meant}", hint=_known_hint()
        )

    def _operator(self) -> str:
        if self._next_is("operator") or self._next_is("in"):
            return self._take().text
        if self._next_is("not"):
            self._take()
            if not self._next_is("in"):
                raise self._expected("'in' behind 'not'")
            self._take()
            return "not in"
        raise self._expected("an operator (==, !=, <, <=, >, >=, ~=, in, not in)")


def _nearest(name: str) -> str | None:
    from difflib import get_close_matches

    found = get_close_matches(name, sorted(_NAMES), n=1, cutoff=0.5)
    return found[0] if found else None


def _known_hint() -> str:
    return "patchkit doctor --names lists the facts that a condition may use"


# -- meaning ----------------------------------------------------------------------------


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, Group):
        for part in node.parts:
            yield from _names(part)
        return
    for side in (node.left, node.right):
        if isinstance(side, Fact):
            yield side.name


def _written(node: Node) -> str:
    if isinstance(node, Group):
        return f" {node.word} ".join(
            f"({_written(part)})" if isinstance(part, Group) else _written(part)
            for part in node.parts
        )
    return f"{_operand_written(node.left)} {node.operator} {_operand_written(node.right)}"


def _operand_written(operand: Operand) -> str:
    if isinstance(operand, Fact):
        return operand.name
    return f"'{operand.text}'" if '"' in operand.text else f'"{operand.text}"'


def _value(node: Node, facts: Mapping[str, str]) -> bool | None:
    if isinstance(node, Comparison):
        left, right = _text(node.left, facts), _text(node.right, facts)
        return None if left is None or right is None else _compared(left, node.operator, right)
    values = [_value(part, facts) for part in node.parts]
    decisive = node.word == "or"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def _text(operand: Operand, facts: Mapping[str, str]) -> str | None:
    return facts.get(operand.name) if isinstance(operand, Fact) else operand.text


@lru_cache(maxsize=4096)
def _compared(left: str, operator: str, right: str) -> bool | None:
    """None where an order is asked of what has none."""
    if operator in ("in", "not in"):
        return _contained(left, right) == (operator == "in")
    version = _version(left)
    if version is not None:
        other = _version(right)
        if other is not None and operator in _ORDERED:
            right = other.public  # a local label has no place in an order (PEP 440)
        try:
            # "=12.8" would make another operator of it.
            if not right.lstrip().startswith("="):
                return Specifier(operator + right).contains(version, prereleases=True)
        except ValueError:  # the other side is no release
            pass
    if operator in _ORDERED:
        return None
    return (left == right) == (operator == "==")


def _contained(left: str, right: str) -> bool:
    """Whether a release is one of those listed, or a text stands in another.

    A release is no part of a release: ``2.0`` is not in ``"9.0, 12.0"``.
    """
    version = _version(left)
    listed = [_version(part) for part in _LIST.split(right) if part]
    if version is not None and listed and None not in listed:
        return version in listed
    return left in right


@lru_cache(maxsize=4096)
def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:  # InvalidVersion, and a number of thousands of digits
        return None


def changes(
    names: Iterable[str], then: Mapping[str, str], now: Mapping[str, str]
) -> list[tuple[str, str | None, str | None]]:
    """(name, then, now) of the facts that differ; None stands for one that was not there."""
    return [
        (name, then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)
    ]
