"""JSON files that are there whole or not at all."""

import json
import math
from pathlib import Path
from typing import Any


def write_json(file: Path, content: Any) -> None:
    """Write atomically: a kill leaves the old file or the new one. nan becomes null."""
    unfinished = file.with_name(file.name + ".tmp")
    unfinished.write_text(json.dumps(_nan_to_none(content), allow_nan=False), encoding="utf-8")
    unfinished.replace(file)


def _nan_to_none(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _nan_to_none(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_nan_to_none(value) for value in content]
    return None if isinstance(content, float) and math.isnan(content) else content
