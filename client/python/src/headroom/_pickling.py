"""Pickles functions and arguments on the client.

Modules that are not installed, such as those beside the script, are pickled by value: the node
need not have them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import re
import site
import sys
import sysconfig
import threading
import types
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

import cloudpickle

__all__ = ["FunctionPickler", "PickledFunction", "describe_call", "dumps", "qualified_name"]

_PLAIN = frozenset({int, float, bool, str, bytes, type(None), complex})
#: Sequences longer than this are pickled by cloudpickle without a look at their items.
_MAX_PLAIN_ITEMS = 64

_register_lock = threading.RLock()


def dumps(value: Any) -> bytes:
    """Pickles a value; functions and classes of modules that are not installed go by value."""
    if _is_plain(value, 3):
        return pickle.dumps(value, 5)
    with _register_lock:
        added = [module for module in _local_modules() if _register(module)]
        try:
            data: bytes = cloudpickle.dumps(value, 5)
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)
    return data


def _register(module: types.ModuleType) -> bool:
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        return False
    cloudpickle.register_pickle_by_value(module)
    return True


def _is_plain(value: Any, depth: int) -> bool:
    """True if the standard pickle has the same result: no functions and no classes."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if not depth:
        return False
    if kind in (tuple, list):
        return len(value) <= _MAX_PLAIN_ITEMS and all(_is_plain(item, depth - 1) for item in value)
    if kind is dict:
        return len(value) <= _MAX_PLAIN_ITEMS and all(
            type(key) in _PLAIN and _is_plain(item, depth - 1) for key, item in value.items()
        )
    return False


_module_cache: Tuple[int, List[types.ModuleType]] = (-1, [])


def _local_modules() -> List[types.ModuleType]:
    """Imported modules and packages of the top level that are not installed."""
    global _module_cache
    known, found = _module_cache
    if known != len(sys.modules):
        installed = _installed_directories()
        found = [
            module
            for name, module in list(sys.modules.items())
            if "." not in name and name != "__main__" and _is_local(module, installed)
        ]
        _module_cache = (len(sys.modules), found)
    return found


def _is_local(module: Any, installed: FrozenSet[str]) -> bool:
    if not isinstance(module, types.ModuleType) or module.__name__.startswith("__editable__"):
        return False
    path = getattr(module, "__file__", None)
    if path is None:
        parts = list(getattr(module, "__path__", ()))
        path = parts[0] if parts else None
    compiled = isinstance(path, str) and path.endswith((".so", ".pyd"))
    if not isinstance(path, str) or compiled:
        return False
    folder = os.path.abspath(path)
    while True:
        parent = os.path.dirname(folder)
        if folder in installed:
            return False
        if parent == folder:
            return True
        folder = parent


@functools.lru_cache(maxsize=1)
def _installed_directories() -> FrozenSet[str]:
    """Directories whose modules any start of this Python can import."""
    paths: Set[str] = set(sysconfig.get_paths().values())
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    paths.update(folders)
    paths.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths.update(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    for folder in folders:
        paths.update(_path_file_entries(folder))
    script = sysconfig.get_path("data")
    return frozenset(os.path.abspath(path) for path in paths if path and path != script)


def _path_file_entries(folder: str) -> List[str]:
    """Directories that ``.pth`` files of a directory add, such as editable installations."""
    found: List[str] = []
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".pth")]
    except OSError:
        return found
    for name in names:
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            path = os.path.join(folder, line.strip())
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                found.append(path)
    return found


def qualified_name(function: Callable[..., Any]) -> str:
    """The name of a callable: of a function, a method, a partial's function, or an object's type.

    >>> qualified_name(functools.partial(pow, 2)), qualified_name("".join), qualified_name(len)
    ('pow', 'str.join', 'len')
    """
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        name = type(function).__qualname__
    elif "." not in name and owner is not None and not isinstance(owner, types.ModuleType):
        kind = owner if isinstance(owner, type) else type(owner)
        name = f"{kind.__qualname__}.{name}"
    return name


class OmittedArgument:
    """An argument that is not kept for messages: only the name of its type is."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


def describe_call(name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> str:
    """A call for messages; long and large arguments are shortened.

    >>> describe_call("load", ("a.parquet",), {"rows": 3})
    "load('a.parquet', rows=3)"
    """
    words = [_short(value) for value in args]
    words += [f"{key}={_short(value)}" for key, value in kwargs.items()]
    text = ", ".join(words)
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{name}({text})"


def _short(value: Any) -> str:
    if type(value) in (str, bytes) and len(value) > 40:
        return repr(value[:37]) + "..."
    if type(value) in _PLAIN:
        return repr(value)[:48]
    return f"<{value.kind if isinstance(value, OmittedArgument) else type(value).__name__}>"


class PickledFunction:
    """A function, ready to be sent."""

    __slots__ = ("data", "digest", "name")

    def __init__(self, name: str, data: bytes) -> None:
        #: Qualified name.
        self.name = name
        #: The pickle.
        self.data = data
        #: SHA-256 of the pickle, hexadecimal.
        self.digest = hashlib.sha256(data).hexdigest()


class FunctionPickler:
    """Pickles each function once, and again when its code or an object that it uses has changed."""

    def __init__(self) -> None:
        self._known: Dict[int, Tuple[Any, Tuple[Any, ...], PickledFunction]] = {}
        self._lock = threading.Lock()

    def pickle(self, function: Callable[..., Any]) -> PickledFunction:
        """The pickled function."""
        mark = _fingerprint(function)
        if mark is not None:
            known = self._known.get(id(function))
            if known is not None and known[0] is function and _same(known[1], mark):
                return known[2]
        made = PickledFunction(qualified_name(function), dumps(function))
        if mark is not None:
            with self._lock:
                if len(self._known) >= 256:
                    self._known.clear()
                # The entry keeps the objects of the mark alive, so that their identity is certain.
                self._known[id(function)] = (function, mark, made)
        return made


def _same(one: Tuple[Any, ...], other: Tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other))


def _fingerprint(function: Any) -> Optional[Tuple[Any, ...]]:
    """The objects that a plain function refers to; ``None`` for callables with other state."""
    if isinstance(function, type):
        return (function,)
    if isinstance(function, types.BuiltinFunctionType):
        bound = not isinstance(function.__self__, types.ModuleType)
        return None if bound else (function,)
    if not isinstance(function, types.FunctionType):
        return None
    found: List[Any] = []
    seen: Set[int] = set()
    waiting: List[types.FunctionType] = [function]
    while waiting and len(seen) < 64:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        found += [one.__code__, one.__defaults__, one.__kwdefaults__]
        values = [one.__globals__.get(name) for name in one.__code__.co_names]
        for cell in one.__closure__ or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:
                values.append(None)
        for value in values:
            if isinstance(value, (list, dict, set, bytearray)):
                return None  # may change in place
        found += values
        waiting += [value for value in values if isinstance(value, types.FunctionType)]
    return tuple(found)


_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9]+")


def stage_name(text: str) -> str:
    """A name for a stage or kind, of at most 32 characters.

    >>> stage_name("Model.fit"), stage_name("main.<locals>.<lambda>")
    ('Model-fit', 'main-lambda')
    """
    words = _NAME_CHARACTERS.sub("-", text.replace("<locals>", "")).strip("-")
    if len(words) <= 32:
        return words or "call"
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return words[-25:].strip("-") + "-" + digest
