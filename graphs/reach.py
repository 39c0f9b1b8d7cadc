"""What a graph's nodes reach, found without running them: functions, effects, tools.

A node's function leads to what it names (its module's globals, attributes of modules, methods
of objects that it holds), what it closes over, and so on through the user's own code; of
libraries only what was given to them is followed, never their globals. So an effect called
through two helpers is found, one looked up by a name made at run time is not.
"""

import contextlib
import functools
import inspect
import itertools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from graphs import own_code

#: Objects looked at per node, and elements per collection: nothing ordinary comes near.
LIMIT = 50_000
ELEMENTS = 1_000

_SIMPLE = (str, bytes, int, float, bool, type(None), complex, range)


def reached(*starts: Any, stop: tuple[type, ...] = ()) -> Iterator[Any]:
    """Everything that the starts lead to, themselves included, each object once.

    What an object of a class in ``stop`` leads to is left out.
    """
    seen: dict[Any, Any] = {}
    waiting = [*starts]
    while waiting and len(seen) < LIMIT:
        found = waiting.pop()
        if isinstance(found, _SIMPLE) or (key := _identity(found)) in seen:
            continue
        # Kept, so that no other object can get its id meanwhile.
        seen[key] = found
        if isinstance(found, types.MethodType) and isinstance(found.__self__, stop):
            continue
        yield found
        if isinstance(found, stop):
            continue
        # A proxy of somebody's may raise whatever is asked of it here.
        with contextlib.suppress(Exception):
            waiting.extend(itertools.islice(_next(found), ELEMENTS))


def only_async(*starts: Any) -> bool:
    """Whether something that they lead to has no sync implementation."""
    return any(_only_async(found) for found in reached(*starts))


def named(kinds: tuple[type, ...], *starts: Any) -> dict[str, Any]:
    """By name, the objects of these kinds that the starts lead to."""
    found: list[Any] = [f for f in reached(*starts) if isinstance(f, kinds)]
    return {f.name: f for f in sorted(found, key=lambda f: str(f.name))}


def is_library(function: types.FunctionType) -> bool:
    """Whether a function belongs to an installed package or to Python itself."""
    return own_code.is_library(function.__code__.co_filename)


def _only_async(found: Any) -> bool:
    if isinstance(found, BaseTool):
        return getattr(found, "coroutine", None) is not None and (
            getattr(found, "func", found) is None
        )
    if isinstance(found, Runnable):
        return getattr(found, "afunc", None) is not None and getattr(found, "func", 0) is None
    # LangChain's middleware: a hook around calls that only its async twin overrides.
    base = next((c for c in type(found).__mro__ if c.__name__ == "AgentMiddleware"), None)
    return base is not None and any(
        getattr(type(found), f"a{hook}", None) is not getattr(base, f"a{hook}", None)
        and getattr(type(found), hook, None) is getattr(base, hook, None)
        for hook in ("wrap_model_call", "wrap_tool_call")
    )


def _identity(found: Any) -> Any:
    """Methods are made at each look."""
    if isinstance(found, types.MethodType):
        return id(found.__func__), id(found.__self__)
    return id(found)


def _next(found: Any) -> Iterable[Any]:
    """Where one object leads."""
    if isinstance(found, types.FunctionType):
        return _of_function(found)
    if isinstance(found, types.MethodType):
        return _of_method(found)
    if isinstance(found, functools.partial):
        return (found.func, *found.args, *found.keywords.values())
    if isinstance(found, list | tuple | set | frozenset):
        return found
    if isinstance(found, Mapping) and not isinstance(found, Runnable):
        return [*found.values()] if isinstance(found, dict) else ()
    if isinstance(found, Pregel):
        return [*found.nodes.values()]
    if isinstance(found, types.ModuleType | type):
        return ()
    return _of_instance(found)


def _of_method(method: types.MethodType) -> Iterator[Any]:
    """The function and its object, with those of the object's methods that it names."""
    function, owner = method.__func__, method.__self__
    yield function
    yield owner
    if isinstance(function, types.FunctionType) and not is_library(function):
        for held in (owner, *_attributes(owner)):
            yield from _methods(held, function.__code__)


def _methods(owner: Any, code: types.CodeType) -> Iterator[Any]:
    """The user's own methods of an object, or functions of a class, that the code names."""
    kind = owner if isinstance(owner, type) else type(owner)
    if isinstance(owner, types.ModuleType | types.FunctionType | types.MethodType):
        return
    for name in _names(code):
        found = inspect.getattr_static(kind, name, None)
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
        if isinstance(found, types.FunctionType) and not is_library(found):
            yield found if owner is kind else types.MethodType(found, owner)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a cell that is still empty
            held.append(cell.cell_contents)
    for value in held:
        yield value
        yield from _methods(value, function.__code__)
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        yield wrapped
    if not is_library(function):
        yield from _named(function.__code__, function.__globals__)


def _named(code: types.CodeType, known: Mapping[str, Any]) -> Iterator[Any]:
    """What the code's names mean: globals, and of modules the attributes it names."""
    for name in code.co_names:
        if name not in known:
            continue
        value = known[name]
        yield value
        yield from _methods(value, code)
        if isinstance(value, types.ModuleType):
            for attribute in code.co_names:
                if attribute in vars(value):
                    yield vars(value)[attribute]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant, known)


def _of_instance(found: Any) -> Iterator[Any]:
    """Attributes of an instance, and its call."""
    yield from _attributes(found)
    for holder in type(found).__mro__:
        call = vars(holder).get("__call__")
        if isinstance(call, types.FunctionType) and not is_library(call):
            yield types.MethodType(call, found)


def _attributes(found: Any) -> Iterator[Any]:
    """What an instance holds."""
    for holder in type(found).__mro__:
        for name in getattr(holder, "__slots__", ()):
            if isinstance(name, str) and (value := getattr(found, name, None)) is not None:
                yield value
    yield from getattr(found, "__dict__", {}).values()
