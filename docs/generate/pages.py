"""Pages of the site that are made from the code: commands, REST, model cards, and links that leave the docs.

mkdocs calls the functions named `on_...` as it builds (`hooks` in mkdocs.yml).
"""

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import rooms

ROOT = Path(__file__).parents[2]
INCLUDED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
    "models/*.md",
    "research/*.md",
    "research/*/*.md",
)
"""Files of the repository outside docs/ that are pages too, at the same path."""
HELP_WIDTH = 100

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")
_FENCED = re.compile(r"(?ms)^```.*?^```$")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, those of the repository, and the pictures that these show."""
    for pattern in INCLUDED:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    for path in sorted(ROOT.glob("research/*/plots/*.png")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for name, content in _generated():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links of the site, or into a path where the site has no such page."""
    source = page.file.src_uri
    home = source if source in _included() else f"docs/{source}"

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        if path.startswith("docs/") and files.get_file_from_path(path.removeprefix("docs/")):
            path = path.removeprefix("docs/")
        elif path not in _included():
            if not (ROOT / path).exists():
                return match[0]  # mkdocs reports it
            return f"`{path}`" if text.strip("`") in (path, target) else f"{text} (`{path}`)"
        return f"[{text}]({posixpath.relpath(path, posixpath.dirname(source) or '.')}{anchor})"

    parts, at = [], 0
    for block in _FENCED.finditer(markdown):
        parts += [_LINK.sub(link, markdown[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*parts, _LINK.sub(link, markdown[at:])])


def _included() -> set[str]:
    return {path.relative_to(ROOT).as_posix() for pattern in INCLUDED for path in ROOT.glob(pattern)}


def _generated() -> Iterator[tuple[str, str]]:
    from kws_edge import cli as device
    from kws_export import cli as workstation

    yield "reference/kws-edge.md", commands("kws-edge", device.main)
    yield "reference/kws-export.md", commands("kws-export", workstation.main)
    yield "reference/rest.md", rest()
    yield "images/rooms.svg", rooms.drawing(ROOT)


def commands(program: str, group: click.Group) -> str:
    """A page with the help of every command, as `--help` prints it."""
    parent = click.Context(group, info_name=program, terminal_width=HELP_WIDTH, **group.context_settings)
    lines = [f"# {program}", "", f"What `{program} --help` and `{program} COMMAND --help` print.", ""]
    lines += ["```text", group.get_help(parent), "```", ""]
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=parent, terminal_width=HELP_WIDTH)
        lines += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def rest() -> str:
    """A page with each route and each field of the server's JSON, from the description that the server itself gives."""
    from kws_edge.server.app import create_app
    from kws_edge.server.settings import ServerSettings

    api: dict[str, Any] = create_app(ServerSettings()).openapi()
    lines = ["# REST, field by field", ""]
    lines += ["Made from what a server gives at `/openapi.json`. [REST and WebSocket](server.md) has examples.", ""]
    for path, methods in api["paths"].items():
        for method, route in methods.items():
            lines += [f"## {method.upper()} {path}", "", route.get("description") or route.get("summary", ""), ""]
            if parameters := route.get("parameters"):
                lines += ["| parameter | in | type | |", "| --- | --- | --- | --- |"]
                lines += [
                    f"| `{p['name']}` | {p['in']} | {_type(p['schema'])} | {_cell(p.get('description', ''))} |"
                    for p in parameters
                ]
                lines.append("")
            answers = [
                f"| {status} | {_cell(answer.get('description', ''))} | {', '.join(_schemas(answer)) or '–'} |"
                for status, answer in route.get("responses", {}).items()
            ]
            lines += ["| status | meaning | body |", "| --- | --- | --- |", *answers, ""]
    for name, schema in sorted(api["components"]["schemas"].items()):
        lines += [f"## {name}", "", schema.get("description", ""), ""]
        if values := schema.get("enum"):
            lines += ["One of " + ", ".join(f"`{value}`" for value in values) + ".", ""]
        if fields := schema.get("properties"):
            lines += ["| field | type | |", "| --- | --- | --- |"]
            lines += [f"| `{f}` | {_type(s)} | {_cell(s.get('description', ''))} |" for f, s in fields.items()]
            lines.append("")
    return "\n".join(lines)


def _type(schema: dict[str, Any]) -> str:
    if ref := schema.get("$ref"):
        name = ref.rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf"):
        return " or ".join(_type(option) for option in options)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    kind = schema.get("type", "any")
    least, most = schema.get("minimum"), schema.get("maximum")
    return f"{kind}, {least:g} to {most:g}" if least is not None and most is not None else str(kind)


def _schemas(answer: dict[str, Any]) -> list[str]:
    content = answer.get("content", {})
    return [
        _type(body["schema"]) if "$ref" in body.get("schema", {}) else f"`{media}`" for media, body in content.items()
    ]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
