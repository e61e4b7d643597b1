"""A module's source in a form in which mutmut mutates all of its functions.

mutmut 3 leaves out every function that has a decorator, but for static and class methods (`file_mutation.py`, 3.8). The
copy has properties and caches as assignments instead, and each child forgets what its parent has cached: it does the
same as the source, with more of it to be mutated. Constants and defaults of fields are mutated in neither, nor is what
other decorators are of.
"""

import ast
from collections.abc import Iterator

_CACHES = ("cache", "lru_cache")
_PROPERTIES = ("property", "cached_property")


def mutable(source: str) -> str:
    """The same module, no function of which has one of these decorators."""
    lines = source.splitlines(keepends=True)
    added: dict[int, str] = {}  # by the number of lines before it
    for function in _decorated(ast.parse(source)):
        for decorator in function.decorator_list:
            name, end = _name(decorator), function.end_lineno
            if name in (*_CACHES, *_PROPERTIES) and end is not None:
                lines[decorator.lineno - 1] = ""
                added[end] = _assigned(function, ast.unparse(decorator) if name in _CACHES else "property")
    return "".join(line + added.get(number, "") for number, line in enumerate(lines, 1))


def _assigned(function: ast.FunctionDef, decorator: str) -> str:
    """What does as the decorator did."""
    indent, name = " " * function.col_offset, function.name
    text = f"\n{indent}{name} = {decorator}({name})\n"
    if decorator != "property":
        text += f"{indent}__import__('os').register_at_fork(after_in_child={name}.cache_clear)\n"
    return text


def _decorated(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list)


def _name(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.id if isinstance(called, ast.Name) else ""
