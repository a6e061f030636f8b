"""What several commands take."""

from pathlib import Path

import click

CACHE = Path("runs/cache")
existing_folder = click.Path(exists=True, file_okay=False, path_type=Path)
existing_file = click.Path(exists=True, dir_okay=False, path_type=Path)
existing_path = click.Path(exists=True, path_type=Path)
