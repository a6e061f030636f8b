"""`kws-export inspect`."""

import math
from pathlib import Path

import click

from kws_edge.text import one_line
from kws_export.cli.options import existing_file


@click.command()
@click.argument("file", type=existing_file, metavar="FILE")
def inspect(file: Path) -> None:
    """Show the operators, weights and metadata of a model FILE.

    \b
    kws-export inspect models/softmax.onnx
    """
    import json
    from collections import Counter

    from kws_export.graph.build import load_model

    model, metadata = load_model(file)
    operators = Counter(node.op_type for node in model.graph.node)
    weights = sum(math.prod(w.dims) for w in model.graph.initializer)
    click.echo(
        f"{one_line(file)}: IR version {model.ir_version}, opset {model.opset_import[0].version}, {weights:,} weights"
    )
    click.echo("operators: " + ", ".join(f"{one_line(name)} x{n}" for name, n in operators.most_common()))
    text = json.dumps(json.loads(metadata.to_json()), indent=2, ensure_ascii=False)
    click.echo("\n".join(map(one_line, text.split("\n"))))
