"""Docstrings for the reference, which knows a section `Examples` where the code says `Example`."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Gives the section of an example the name under which the reference shows it as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
