"""Runs the Python of a page, block after block, as a reader would who types it in."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


async def run_page(page: str, names: dict[str, Any]) -> int:
    """Run every Python block of a page in one namespace; how many there were."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    for block in blocks:
        code = compile(block, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        ran = eval(code, names)  # noqa: S307 - our own page
        if inspect.isawaitable(ran):
            await ran
    return len(blocks)
