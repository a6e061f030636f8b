"""Read the project's docstrings for the site: `name : what it is` in one line, as the code has it, in numpydoc's form.

The types stand in the signatures, so a docstring's section says `target : the accuracy that ...`. numpydoc takes what
follows the colon for a type; here it becomes the description. A default that is a constant is shown by its value,
because the site has no page of constants.
"""

import ast
import re
from typing import Any

from griffe import Alias, AliasResolutionError, Class, Expr, ExprName, Extension, GriffeLoader, Module, Object

_SECTIONS = ("Parameters", "Attributes", "Raises", "Returns", "Yields")
_HEAD = re.compile(rf"(?m)^({'|'.join(_SECTIONS)})\n-+\n")
_ENTRY = re.compile(r"^(?P<names>[*\w][\w, *.]*?) : (?P<text>.*)$")


class OneLineEntries(Extension):
    """Give every entry of a section its description on the lines below its name, and every default its value."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite an object's docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = numpydoc(obj.docstring.value)

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **_: Any) -> None:
        """Show the values of constants in signatures, once all modules are loaded."""
        _show_defaults(pkg, loader)


def _show_defaults(scope: Module | Class, loader: GriffeLoader) -> None:
    for member in scope.members.values():
        if isinstance(member, Alias):
            continue
        if member.is_function:
            for parameter in member.parameters:
                parameter.default = _value(parameter.default, loader)
        elif member.is_attribute and isinstance(scope, Class):  # the fields of a dataclass
            member.value = _value(member.value, loader)
        elif isinstance(member, Module | Class):
            _show_defaults(member, loader)


def _value(default: str | Expr | None, loader: GriffeLoader) -> str | Expr | None:
    """The literal behind the name of a constant; anything else as it is."""
    if not isinstance(default, ExprName):
        return default
    try:
        constant = loader.modules_collection[default.canonical_path]
        value = str((constant.final_target if isinstance(constant, Alias) else constant).value)
        ast.literal_eval(value)
    except (AliasResolutionError, AttributeError, KeyError, SyntaxError, ValueError):
        return default
    return value


def numpydoc(text: str) -> str:
    """The docstring with its sections in numpydoc's form; what is said of several names stands at the first.

    >>> print(numpydoc("Do it.\\n\\nRaises\\n------\\nSettingError, AudioError : a rate\\n    below 1."))
    Do it.
    <BLANKLINE>
    Raises
    ------
    SettingError
        `SettingError`, `AudioError`: a rate
        below 1.
    AudioError
        see `SettingError`.
    """
    parts = _HEAD.split(text)
    result = [parts[0]]
    for section, body in zip(parts[1::2], parts[2::2], strict=True):
        lines: list[str] = []
        others: list[str] = []  # the names that share the entry being read
        for line in body.split("\n"):
            entry = _ENTRY.match(line)
            if (entry or not line.strip()) and others:
                lines += others
                others = []
            if entry:
                names = entry["names"].split(", ")
                shared = f"{', '.join(f'`{name}`' for name in names)}: " if len(names) > 1 else ""
                lines += [names[0], f"    {shared}{entry['text']}"]
                others = [f"{name}\n    see `{names[0]}`." for name in names[1:]]
            elif section in ("Returns", "Yields") and line and not line.startswith(" ") and not lines:
                lines += ["result", f"    {line}"]
            elif section in ("Returns", "Yields") and line and not line.startswith(" "):
                lines.append(f"    {line}")
            else:
                lines.append(line)
        result += [f"{section}\n{'-' * len(section)}\n", "\n".join([*lines, *others])]
    return "".join(result)
