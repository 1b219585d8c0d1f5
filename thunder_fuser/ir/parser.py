"""Text -> fusion: reads what `printer` writes, for tests, bug reports and programs that replace a dumped one.

Reads one program; blank lines and lines that open with `#` or `//` are passed over. Equal nodes stay as many as they
are in the text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TypeVar

from thunder_fuser.errors import IRError
from thunder_fuser.ir import nodes
from thunder_fuser.ir.dtypes import DTYPES
from thunder_fuser.ir.nodes import Constant, Fusion, Node, Operand, ScalarType, TensorType, Type, Update, Value, is_legal_name
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS, SCANS
from thunder_fuser.ir.printer import attribute_names, print_type
from thunder_fuser.ir.random import KINDS
from thunder_fuser.ir.rules import infer

T = TypeVar("T")

_NAME = r"[A-Za-z_][\w.]*"
_TYPE = r"[a-z]+\d+(?:_e\d+m\d+)?(?:\[[^\]]*\])?"
_HEADER = re.compile(rf"fusion ({_NAME})\((.*)\) \{{")
_BINDER = re.compile(rf"({_NAME}): ({_TYPE})")
_NODE = re.compile(rf"({_NAME}): ({_TYPE}) = (\w+)\((.*)\)")
_EFFECT = re.compile(r"(update|apart|views) ")
_ATTRIBUTE = re.compile(r"(\w+)=(\[[^\]]*\]|-?\d+)(?:, |$)")
_FIRST_ATTRIBUTE = re.compile(r"(?:^|, )(?=\w+=)")
_REAL = r"(?:inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_NUMBER = re.compile(rf"True|False|-?{_REAL}j?|\(-?{_REAL}[+-]{_REAL}j\)")
_FLAGS = ("accumulate", "preserve")
_STRUCTURAL = {c.__name__.lower(): c for c in (
    nodes.Cast, nodes.Bitcast, nodes.Full, nodes.Iota, nodes.Reshape, nodes.Permute, nodes.Slice, nodes.Squeeze, nodes.Broadcast, nodes.Pad,
    nodes.Cat, nodes.Flip, nodes.Gather, nodes.Copy, nodes.Scatter)}


def parse(text: str) -> Fusion:
    """The fusion that `text` describes: `str(parse(text)) == text` for text that the printer wrote.

    Raises `IRError` with the line number and the line for text that is no program or a program that is not legal."""
    return _Parser().parse(text)


class _Parser:
    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.updates: list[Update] = []
        self.apart: list[tuple[Value, int]] = []
        self.views: list[Value] = []

    def parse(self, text: str) -> Fusion:
        lines = [(i, stripped) for i, line in enumerate(text.splitlines(), start=1)
                 if (stripped := line.strip()) and not stripped.startswith(("#", "//"))]
        if len(lines) < 3:
            raise IRError("A program has a 'fusion' line, a 'return' line and a closing brace.")
        (first, header), *body, (before_last, results), (last, brace) = lines
        name, inputs = self._at(first, header, self.header)
        nodes_ = len(body)
        while nodes_ and _EFFECT.match(body[nodes_ - 1][1]):
            nodes_ -= 1
        made = tuple(self._at(i, line, self.node) for i, line in body[:nodes_])
        for i, line in body[nodes_:]:
            self._at(i, line, self.effect)
        outputs = self._at(before_last, results, self.results)
        if brace != "}":
            raise IRError(f"Line {last}: '{brace}' closes no program, expected '}}'.")
        return Fusion(name, inputs, made, outputs, tuple(self.updates), tuple(self.apart), tuple(self.views))

    def _at(self, number: int, line: str, read: Callable[[str], T]) -> T:
        try:
            return read(line)
        except IRError as e:
            raise IRError(f"Line {number}: {e}\n>>> {line}") from None

    def header(self, line: str) -> tuple[str, tuple[Value, ...]]:
        match = _HEADER.fullmatch(line)
        if not match:
            raise IRError("Expected 'fusion NAME(INPUT: TYPE, ...) {'.")
        name, given = match.groups()
        binders = list(_BINDER.finditer(given))
        if ", ".join(b.group() for b in binders) != given:
            raise IRError("Expected inputs as in 'x: f32[4, 8], s: f64'.")
        return name, tuple(self.define(b[1], _type(b[2])) for b in binders)

    def results(self, line: str) -> tuple[Value, ...]:
        word, _, names = line.partition(" ")
        if word != "return":
            raise IRError("Expected 'return NAME, ...' as the last line but one.")
        return tuple(self.value(n) for n in names.split(", ")) if names else ()

    def effect(self, line: str) -> None:
        """An update, or what the program relies on for its updates."""
        word, _, rest = line.partition(" ")
        if word == "views":
            self.views += [self.value(n) for n in rest.split(", ")]
            return
        name, between, other = rest.partition(" = " if word == "update" else ", ")
        if not between or (word == "apart" and not other.isdigit()):
            raise IRError(f"Expected '{'update TARGET = VALUE' if word == 'update' else 'apart INPUT, NUMBER'}'.")
        if word == "update":
            self.updates.append(Update(self.value(name), self.value(other)))
        else:
            self.apart.append((self.value(name), int(other)))

    def node(self, line: str) -> Node:
        match = _NODE.fullmatch(line)
        if not match:
            raise IRError("Expected 'NAME: TYPE = OP(OPERAND, ..., ATTRIBUTE=VALUE, ...)'.")
        name, type_text, op, given = match.groups()
        declared = _type(type_text)
        split = _FIRST_ATTRIBUTE.search(given)
        operands = given[: split.start()] if split else given
        attributes = _attributes(op, given[split.end() :] if split else "")
        out = self.define(name, declared, bind=False)
        node = _make(op, out, [self.operand(o) for o in operands.split(", ")] if operands else [], attributes)
        inferred = infer(node, declared if isinstance(declared, TensorType) else TensorType(declared.dtype, ()))
        if inferred != declared:
            raise IRError(f"'{op}' makes type '{print_type(inferred)}', the text says '{print_type(declared)}'.")
        self.values[name] = out
        return node

    def define(self, name: str, type_: Type, *, bind: bool = True) -> Value:
        if name in self.values:
            raise IRError(f"'{name}' is defined twice.")
        if not is_legal_name(name):
            raise IRError(f"'{name}' is no name for a value.")
        value = Value(name, type_)
        if bind:
            self.values[name] = value
        return value

    def value(self, name: str) -> Value:
        if name not in self.values:
            raise IRError(f"'{name}' is not defined here.")
        return self.values[name]

    def operand(self, text: str) -> Operand:
        if text in self.values:
            return self.values[text]
        if not _NUMBER.fullmatch(text):
            return self.value(text)
        if text in ("True", "False"):
            return Constant(text == "True")
        if text.endswith(("j", "j)")):
            return Constant(complex(text))
        return Constant(int(text) if text.lstrip("-").isdigit() else float(text))


def _type(text: str) -> Type:
    dtype, bracket, sizes = text.partition("[")
    if dtype not in DTYPES:
        raise IRError(f"'{dtype}' is not a dtype, expected one of {', '.join(DTYPES)}.")
    if not bracket:
        return ScalarType(DTYPES[dtype])
    sizes = sizes.removesuffix("]")
    if not re.fullmatch(r"(\d+(, \d+)*)?", sizes):
        raise IRError(f"'[{sizes}]' is not a shape, expected sizes as in '[4, 8]'.")
    return TensorType(DTYPES[dtype], tuple(int(n) for n in sizes.split(", ")) if sizes else ())


def _attributes(op: str, text: str) -> dict[str, object]:
    found, end = {}, 0
    while end < len(text):
        match = _ATTRIBUTE.match(text, end)
        if not match or match[1] in found:
            raise IRError(f"'{text[end:]}' are no attributes of '{op}', expected some as in 'dims=[0, 1]'.")
        try:
            value = ast.literal_eval(match[2])
        except (SyntaxError, ValueError):
            value = None
        if not _fits(match[1], value):
            raise IRError(f"'{match[2]}' is no value of '{match[1]}', expected integers.")
        found[match[1]] = tuple(value) if isinstance(value, list) else bool(value) if match[1] in _FLAGS else value
        end = match.end()
    return found


def _fits(name: str, value: object) -> bool:
    """Whether an attribute's value has the type that its field has."""
    if name == "dim":
        return isinstance(value, int)
    if name in _FLAGS:
        return value == 1
    if name == "widths":
        return isinstance(value, list) and all(
            isinstance(w, tuple) and len(w) == 3 and all(isinstance(n, int) for n in w) for w in value)
    return isinstance(value, list) and all(isinstance(n, int) for n in value)


def _make(op: str, out: Value, operands: list[Operand], attributes: dict[str, object]) -> Node:
    """The node called `op`; whether it is legal is for `infer` to say."""
    tables = ((POINTWISE, nodes.Pointwise), (REDUCTIONS, nodes.Reduce), (KINDS, nodes.Random), (SCANS, nodes.Scan))
    cls = next((c for table, c in tables if op in table), _STRUCTURAL.get(op))
    if cls is None:
        raise IRError(f"'{op}' is not an op.")
    names = attribute_names(cls)
    defaults = {"order": None, "accumulate": False, "preserve": False, "steps": (1,) * len(attributes.get("starts", ()))}
    attributes = {n: attributes[n] if n in attributes else defaults.get(n) for n in names} | attributes
    if set(attributes) != set(names) or any(attributes[n] is None for n in names if n != "order"):
        raise IRError(f"'{op}' has the attributes {list(names)}, got {list(attributes)}.")
    if cls in (nodes.Pointwise, nodes.Cat):
        return cls(out, *([op] if cls is nodes.Pointwise else []), tuple(operands), **attributes)
    if cls is nodes.Scatter and len(operands) > 2:
        return cls(out, operands[0], operands[1], tuple(operands[2:]), **attributes)
    expected = 4 if cls is nodes.Random else 2 if cls in (nodes.Iota, nodes.Pad, nodes.Gather) else 1
    if len(operands) != expected:
        raise IRError(f"'{op}' takes {expected} operands, got {len(operands)}.")
    return cls(out, *([op] if cls in (nodes.Reduce, nodes.Random, nodes.Scan) else []), *operands, **attributes)
