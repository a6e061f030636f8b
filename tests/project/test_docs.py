"""What the docs show is what happens: examples run, commands and options exist, output is what is printed."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import click
import griffe
import pytest
from live_server import live_server
from paths import ROOT

import kws_edge
import kws_edge.client
import kws_edge.errors
import kws_edge.tuning
from kws_edge.cli import main as kws_edge_command
from kws_edge.model.shipped import shipped_models

ROOMS = ("docs", "models", "examples", "research", "export", "kws_edge")
PAGES = sorted([*ROOT.glob("*.md"), *(page for room in ROOMS for page in (ROOT / room).rglob("*.md"))])
ADDRESS = "http://127.0.0.1:8765"
PUBLIC = [kws_edge, kws_edge.client, kws_edge.tuning]


def generate(name: str) -> ModuleType:
    """A script of docs/generate: `outputs` runs the commands of the docs, `docstrings` reads those of the code."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "generate" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(language: str, pages: list[Path] = PAGES) -> Iterator[tuple[str, str]]:
    """Where in the docs a fenced block of a language is, and what it holds."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"(?ms)^```{language}\n(.*?)^```$", text):
            line = text[: match.start()].count("\n") + 1
            yield f"{page.relative_to(ROOT)}:{line}", match[1]


def all_blocks(language: str) -> list[object]:
    return [pytest.param(text, id=where) for where, text in blocks(language)]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with live_server(shipped_models()["stream"]) as server:
        yield str(server.base_url)


def run_examples(text: str, name: str, address: str) -> None:
    """Run a text's examples at the top of the checkout; those for a server ask the running one."""
    examples = doctest.DocTestParser().get_doctest(text.replace(ADDRESS, address), {}, name, name, 0)
    assert examples.examples
    printed: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=printed.append)
    assert not result.failed, "".join(printed)


def public_objects() -> list[object]:
    """Every public name that is a class or function, with its public methods that have an example."""
    params: list[object] = []
    for module in PUBLIC:
        for name in module.__all__:
            thing = getattr(module, name)
            params.append(pytest.param(thing.__doc__, id=f"{module.__name__}.{name}"))
            for method, value in vars(thing).items() if isinstance(thing, type) else ():
                doc = getattr(value, "__doc__", None) or ""
                if not method.startswith("_") and ">>>" in doc:
                    params.append(pytest.param(doc, id=f"{module.__name__}.{name}.{method}"))
    return params


@pytest.mark.parametrize("docstring", public_objects())
def test_every_public_name_has_an_example_that_runs(
    docstring: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert ">>>" in docstring, "the docstring has no example"
    run_examples(docstring, "docstring", address)


def documented() -> Iterator[tuple[str, str, set[str], ModuleType]]:
    """Each docstring on the site: whose it is, its text without examples, the names that it may use, its module."""
    for name, thing in {name: getattr(module, name) for module in PUBLIC for name in module.__all__}.items():
        home = sys.modules[thing.__module__]
        members = {key: value for key, value in vars(thing).items() if isinstance(thing, type)}
        own = {*members, *getattr(thing, "__annotations__", {})}
        parts = {name: thing, **{f"{name}.{key}": value for key, value in members.items() if not key.startswith("_")}}
        if "__init__" in members:
            parts[f"{name}()"] = members["__init__"]
        for whose, part in parts.items():
            function = getattr(part, "__func__", part)
            names = {*own, *(inspect.signature(function).parameters if inspect.isfunction(function) else ())}
            text = inspect.getdoc(function) if isinstance(function, type | FunctionType | property) else None
            yield whose, (text or "").partition("\nExamples\n---")[0], names, home


def private_names(text: str, own: set[str], home: ModuleType) -> list[str]:
    """What a docstring names that no page of the site explains: constants, functions and files of the package."""
    known = {*own, *(name for module in PUBLIC for name in module.__all__), *vars(kws_edge.errors)}
    known |= {module.__name__ for module in PUBLIC} | {"kws_edge"}
    quoted = {name.partition(".")[0] for name in re.findall(r"`([A-Za-z_][\w.]*)`", text)}
    modules = {path.stem for path in (ROOT / "kws_edge").rglob("*.py")}
    private = {name for name in quoted - known if name in vars(home) or name in modules or name.isupper()}
    return sorted(private | set(re.findall(r"[\w/]+\.py\b|this module", text)))


def test_the_reference_names_nothing_that_it_does_not_explain() -> None:
    found = {whose: private_names(text, own, home) for whose, text, own, home in documented()}
    assert len(found) > 60
    assert {whose: names for whose, names in found.items() if names} == {}


@pytest.mark.parametrize("text", ["None for `MAX_SECONDS`.", "as for `load`", "see channels.py", "as `load.load` does"])
def test_a_private_name_in_a_docstring_is_noticed(text: str) -> None:
    assert private_names(text, set(), sys.modules["kws_edge.audio.load"])


def test_an_entry_for_several_names_is_read_from_the_first() -> None:
    text = "Do it.\n\nParameters\n----------\nsource, rate : a file, or\n    samples.\nhop : seconds.\n"
    entries = generate("docstrings").numpydoc(text).partition("----------\n")[2]
    assert (
        entries
        == "source\n    `source`, `rate`: a file, or\n    samples.\nrate\n    see `source`.\nhop\n    seconds.\n"
    )


def test_the_reference_shows_a_constant_by_its_value(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    (package / "__init__.py").write_text("from sample.settings import HOP\n")
    (package / "settings.py").write_text("from typing import Final\n\nHOP: Final = 0.1\nOF = HOP.hex\n")
    (package / "stream.py").write_text(
        "from dataclasses import dataclass\nfrom sample import HOP\nfrom sample.settings import OF\n\n"
        "def listen(hop: float = HOP, of: object = OF, n: int = 3) -> None: ...\n\n"
        "@dataclass\nclass Wake:\n    seconds: float = HOP\n"
    )
    extensions = griffe.load_extensions(generate("docstrings").OneLineEntries)
    loaded = griffe.load("sample", search_paths=[tmp_path], extensions=extensions)
    assert [str(p.default) for p in loaded["stream.listen"].parameters] == ["0.1", "OF", "3"]
    assert [str(p.default) for p in loaded["stream.Wake"].parameters if p.name == "seconds"] == ["0.1"]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_every_public_name_is_on_a_page_of_the_reference(module: ModuleType) -> None:
    """Errors are on the page of theirs as a group."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference" / "api").glob("*.md"))
    shown = set(re.findall(r"(?m)^::: (\S+)$", pages))
    assert "kws_edge.errors" in shown
    grouped = {f"{module.__name__}.{name}" for name in module.__all__ if name in vars(kws_edge.errors)}
    assert {f"{module.__name__}.{name}" for name in module.__all__} - shown - grouped == set()


@pytest.mark.parametrize("text", all_blocks("pycon"))
def test_the_sessions_of_the_docs_print_what_they_show(
    text: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    run_examples(text, "session", address)


@pytest.mark.parametrize("page", generate("outputs").pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_the_docs_print_what_they_show(page: Path) -> None:
    """`python docs/generate/outputs.py` writes it anew."""
    assert not list(generate("outputs").differences(page))


@pytest.mark.parametrize("text", all_blocks("python"))
def test_the_names_that_the_docs_import_exist(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("kws_edge", "kws_export")):
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def invocations(text: str) -> Iterator[list[str]]:
    """The words of every call of one of the commands in a shell block."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\$ ", "", text))
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        starts = [i for i, word in enumerate(words) if Path(word).name in ("kws-edge", "kws-export")]
        for i, start in enumerate(starts):
            if start + 1 < len(words) and (
                start == 0 or words[start - 1] in ("&&", "|", ";") or "=" in words[start - 1]
            ):
                part = words[start : starts[i + 1] if i + 1 < len(starts) else None]
                yield part[: next((j for j, word in enumerate(part) if word in ("|", "&&", "<", ">", ";")), None)]


def wrong_in(words: list[str]) -> str | None:
    """What is wrong with a call, in words: no such command, or no such option."""
    from kws_export.cli import main as kws_export_command

    program = kws_edge_command if Path(words[0]).name == "kws-edge" else kws_export_command
    name = words[1]
    if name.startswith("-"):
        return None
    # A command keeps the names of its help option from the first context that asks: it must be that of its program.
    parent = click.Context(program, **program.context_settings)
    command = program.get_command(parent, name)
    if command is None:
        return f"no command {name}"
    known = re.findall(
        r"(?m)^  .*?(--[a-z-]+)(?: / (--[a-z-]+))?", command.get_help(click.Context(command, parent=parent))
    )
    options = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
    unknown = sorted(options - {option for pair in known for option in pair})
    return f"{name} has no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("text", [*all_blocks("bash"), *all_blocks("console")])
def test_the_commands_and_options_of_the_docs_exist(text: str) -> None:
    assert [wrong for words in invocations(text) if (wrong := wrong_in(words))] == []


@pytest.mark.parametrize("text", ["kws-edge clasify x.wav", "kws-edge listen --word yes", "A=1 kws-edge listen --nope"])
def test_a_command_or_option_that_does_not_exist_is_noticed(text: str) -> None:
    assert [wrong_in(words) for words in invocations(text)] != [None]


def unreachable(text: str) -> str | None:
    """The first command of a block that nobody comes to, since the one before it runs until it is stopped."""
    serving = False
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if serving and line and not line.startswith("#"):
            return line
        serving = bool(re.search(r"(^|[ /])(kws-edge serve|serve run|http\.server)( |$)", line))
    return None


@pytest.mark.parametrize("text", all_blocks("bash"))
def test_what_follows_a_server_is_said_to_be_for_another_terminal(text: str) -> None:
    assert unreachable(text) is None


def test_a_command_behind_a_server_is_noticed() -> None:
    assert unreachable("kws-edge serve --models stream\ncurl http://127.0.0.1:8765\n") == "curl http://127.0.0.1:8765"
    assert unreachable("kws-edge serve\n# in a second terminal:\ncurl http://127.0.0.1:8765\n") is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_scripts_that_a_page_names_exist_with_their_options(page: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    wrong = []
    for script, rest in re.findall(r"python3? ([a-z]+/[\w/]+\.py)([^`\n]*)", text):
        source = (ROOT / script).read_text(encoding="utf-8") if (ROOT / script).is_file() else None
        options = re.findall(r" (--[a-z-]+)", rest)
        wrong += [f"{script} {option}" for option in options if f'"{option}"' not in (source or "")]
        wrong += [script] if source is None else []
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_holds_the_marks_of_a_merge(page: Path) -> None:
    assert not re.search(r"(?m)^(<{7}|={7}|>{7})", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_of_the_repository_lead_somewhere(page: Path) -> None:
    generated = {"reference/kws-edge.md", "reference/kws-export.md", "reference/rest.md", "images/rooms.svg"}
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
        path = (page.parent / target).resolve()
        if "://" in target or path.exists():
            continue
        if (ROOT / "docs") in path.parents and path.relative_to(ROOT / "docs").as_posix() in generated:
            continue
        broken.append(target)
    assert broken == []
