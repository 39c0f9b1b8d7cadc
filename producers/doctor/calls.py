"""Calls to the outside in one function's code, read and not run.

Names are looked up where the function would find them (its globals, what it closes over,
attributes of modules), so `import httpx as h` and `from requests import post` are seen.
What a local variable holds is followed through assignments, `with` and annotations, what an
object holds (`self.client`) is looked up in the object, whose own code is not run for it. A
line that ends in `# fleet: reads` is taken at its word.
"""

import ast
import inspect
import linecache
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .clients import TELLING, kind_of, library_of, makes_client, meaning

_UNKNOWN = object()
#: Of a call whose author knows that it changes nothing.
_READS = re.compile(r"#\s*fleet:\s*reads\b")


@dataclass(frozen=True)
class OutsideCall:
    """changes: something outside, or it may; else it reads. sure: the receiver is known to
    be that library's; else only its name tells.
    """

    module: str
    file: str
    line: int
    function: str
    call: str
    library: str
    changes: bool
    sure: bool


def outside_calls(function: types.FunctionType, owner: Any = None) -> list[OutsideCall]:
    """Calls to the outside; ``owner``: the object whose method it is. Raises OSError where
    there is no source."""
    node = _definition(function)
    return [] if node is None else list(_Reader(function, node, owner).found())


class _Reader:
    """Reads one function, with the functions defined in it."""

    def __init__(self, function: types.FunctionType, node: ast.AST, owner: Any) -> None:
        self._function = function
        self._node = node
        self._module = function.__module__
        self._names = dict(function.__globals__)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=False
        ):
            try:
                self._names[name] = cell.cell_contents
            except ValueError:
                self._names[name] = _UNKNOWN
        for name in _bound(node):
            self._names[name] = _UNKNOWN
        if owner is not None and function.__code__.co_argcount:
            self._names[function.__code__.co_varnames[0]] = owner
        #: Local names of clients, and attributes, with their library.
        self._clients: dict[str, str] = {}
        self._learn()

    def found(self) -> Iterator[OutsideCall]:
        at_hand = self._at_hand()
        for call in (n for n in ast.walk(self._node) if isinstance(n, ast.Call)):
            name = _name(call.func)
            if name is None:
                continue
            library = self._library(call.func)
            means = meaning(name, call)
            if library is not None:
                if means != "neutral" and not self._only_makes(name, call.func):
                    yield self._told(call, library, means == "changes", sure=True)
            elif (
                at_hand
                and name in TELLING
                and isinstance(call.func, ast.Attribute)
                and self._value(call.func) is _UNKNOWN
                and means == "changes"
            ):
                yield self._told(call, at_hand, True, sure=False)

    def _told(self, call: ast.Call, library: str, changes: bool, *, sure: bool) -> OutsideCall:
        text = ast.unparse(call.func)
        name = self._function.__qualname__.replace("<locals>.", "")
        file = self._function.__code__.co_filename
        lines = linecache.getlines(file)[call.lineno - 1 : call.end_lineno]
        changes = changes and not any(_READS.search(line) for line in lines)
        return OutsideCall(
            self._module, file, call.lineno, name, f"{text}(…)", library, changes, sure
        )

    def _only_makes(self, name: str, made_by: ast.expr) -> bool:
        return makes_client(name, self._value(made_by))

    def _at_hand(self) -> str | None:
        """A client library that the function's module imports."""
        for value in self._function.__globals__.values():
            named = inspect.ismodule(value) or isinstance(value, type)
            if named and (found := library_of(value)) is not None:
                return found
        return None

    def _learn(self) -> None:
        # Twice: what a name holds may come from one that is bound further down.
        for _ in range(2):
            for node in ast.walk(self._node):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._holds(target, node.value)
                elif isinstance(node, ast.AnnAssign):
                    self._annotated(node.target, node.annotation)
                    if node.value is not None:
                        self._holds(node.target, node.value)
                elif isinstance(node, ast.NamedExpr):
                    self._holds(node.target, node.value)
                elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                    self._holds(node.optional_vars, node.context_expr)
                elif isinstance(node, ast.arg) and node.annotation is not None:
                    self._annotated(ast.Name(node.arg), node.annotation)

    def _holds(self, target: ast.expr, value: ast.expr) -> None:
        """The target is a client if the value makes one."""
        value = value.value if isinstance(value, ast.Await) else value
        made = isinstance(value, ast.Call) and self._makes(value)
        if isinstance(target, ast.Name | ast.Attribute) and (
            made or not isinstance(value, ast.Call)
        ):
            library = self._library(value)
            if library is not None:
                self._clients[ast.unparse(target)] = library

    def _makes(self, call: ast.Call) -> bool:
        name = _name(call.func)
        value = self._value(call.func)
        return name is not None and (makes_client(name, value) or _returned(value) is not None)

    def _annotated(self, target: ast.expr, annotation: ast.expr) -> None:
        library = self._library(annotation)
        if isinstance(target, ast.Name | ast.Attribute) and library is not None:
            self._clients[ast.unparse(target)] = library

    def _library(self, expr: ast.expr) -> str | None:
        """The client library that an expression belongs to."""
        if isinstance(expr, ast.Await):
            return self._library(expr.value)
        if isinstance(expr, ast.Constant) and isinstance(expr.value, str):
            value = self._names.get(expr.value.partition(".")[0], _UNKNOWN)
            return None if value is _UNKNOWN else library_of(value)
        if isinstance(expr, ast.Name | ast.Attribute) and (
            known := self._clients.get(ast.unparse(expr))
        ):
            return known
        value = self._value(expr)
        if value is not _UNKNOWN and value is not None:
            return library_of(value)
        if isinstance(expr, ast.Attribute):
            return self._declared(expr) or self._library(expr.value)
        if isinstance(expr, ast.Subscript):
            return self._library(expr.value)
        if isinstance(expr, ast.Call):
            returned = _returned(self._value(expr.func))
            return self._library(expr.func) if returned is None else library_of(returned)
        return None

    def _value(self, expr: ast.expr) -> Any:
        """What a name or an attribute means; no property is run."""
        if isinstance(expr, ast.Name):
            return self._names.get(expr.id, _UNKNOWN)
        if isinstance(expr, ast.Attribute):
            owner = self._value(expr.value)
            if owner is not _UNKNOWN:
                return _attribute(owner, expr.attr)
        return _UNKNOWN

    def _declared(self, expr: ast.Attribute) -> str | None:
        """The library of an attribute that holds nothing yet, by its class's annotation."""
        owner = self._value(expr.value)
        if owner is _UNKNOWN or inspect.ismodule(owner):
            return None
        for kind in type(owner).__mro__:
            try:
                declared = inspect.get_annotations(kind, eval_str=True).get(expr.attr)
            except Exception:
                continue
            for part in (declared, *typing.get_args(declared)):
                if isinstance(part, type) and (found := library_of(part)) is not None:
                    return found
        return None


def _attribute(owner: Any, name: str) -> Any:
    found = inspect.getattr_static(owner, name, _UNKNOWN)
    if isinstance(found, types.MemberDescriptorType):
        # A slot: reading it runs no code.
        return getattr(owner, name, _UNKNOWN)
    return _UNKNOWN if isinstance(found, property) else found


def _returned(function: Any) -> type | None:
    """The client class that a function of the user's is annotated to return."""
    if not isinstance(function, types.FunctionType) or kind_of(function.__module__) is not None:
        return None
    try:
        found = inspect.get_annotations(function, eval_str=True).get("return")
    except Exception:
        return None
    return found if isinstance(found, type) and library_of(found) is not None else None


def _name(callee: ast.expr) -> str | None:
    if isinstance(callee, ast.Attribute):
        return callee.attr
    return callee.id if isinstance(callee, ast.Name) else None


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that are bound in the function, so that the globals of that name are not meant."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg):
            yield inner.arg
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id


def _definition(function: types.FunctionType) -> ast.AST | None:
    """The function in its file's syntax tree."""
    code = function.__code__
    for node in ast.walk(_parsed(code.co_filename)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno and node.name == code.co_name:
                return node
        elif (
            isinstance(node, ast.Lambda)
            and code.co_name == "<lambda>"
            and node.lineno == code.co_firstlineno
        ):
            return node
    return None


@cache
def _parsed(file: str) -> ast.Module:
    try:
        return ast.parse(Path(file).read_bytes(), file)
    except (SyntaxError, ValueError) as exc:
        raise OSError(f"{file} can't be parsed: {exc}") from exc
