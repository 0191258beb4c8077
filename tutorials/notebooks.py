"""Notebooks of the tutorials: `python tutorials/notebooks.py` writes NAME.ipynb of NAME.py."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def cells(text: str) -> list[tuple[str, str]]:
    r"""Kind and source of each cell of a file in the percent format.

    Example:
        >>> cells("# %% [markdown]\n# # Title\n\n# %%\nprint(1)\n")
        [('markdown', '# Title'), ('code', 'print(1)')]
    """
    found = []
    for part in text.split("# %%")[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().split("\n")]
            found.append(("markdown", "\n".join(lines)))
        else:
            found.append(("code", body.strip()))
    return found


def notebook(text: str) -> dict[str, Any]:
    """A notebook in nbformat 4.5, without outputs."""
    made = []
    for number, (kind, source) in enumerate(cells(text)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = source.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell)
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": python, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def write(path: Path) -> str:
    """The text of the notebook of a tutorial."""
    return json.dumps(notebook(path.read_text()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for tutorial in sorted(HERE.glob("*.py")):
        if tutorial.stem != "notebooks":
            tutorial.with_suffix(".ipynb").write_text(write(tutorial))
