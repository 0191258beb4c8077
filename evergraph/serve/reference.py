"""The page of the interface, and the shapes of bodies for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 200},
    "description": "The same key and body again: nothing is stored twice.",
}
_ID = {"oneOf": [{"type": "string", "maxLength": 1024}, {"type": "integer"}]}
_EDGE = {
    "type": "object",
    "required": ["source", "target"],
    "properties": {"source": _ID, "target": _ID, "weight": {"type": "number"}},
}
EVENTS: Mapping[str, Any] = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {
            "enum": [
                "schema", "node", "edge", "label", "delete_node", "delete_edge", "delete_label",
                "forget_node", "forget_edge", "forget_label",
            ]
        },
        "id": _ID,
        "source": _ID,
        "target": _ID,
        "label": {"type": "string"},
        "weight": {"type": "number"},
        "time": {"type": "number"},
    },
    "description": "One event, or one per line. All other keys of a node are features.",
    "example": {"type": "node", "id": "ann", "age": 31},
}  # fmt: skip
LABEL: Mapping[str, Any] = {
    "type": "object",
    "required": ["id", "label"],
    "properties": {"id": _ID, "label": {"type": "string"}},
    "example": {"id": "ann", "label": "editor"},
}
QUESTION: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "ids": {"type": "array", "items": _ID},
        "nodes": {"type": "array", "items": {"type": "object"}},
        "edges": {"type": "array", "items": _EDGE},
        "coverage": {"type": "number", "default": 0.9},
        "remember": {"type": "boolean", "default": True},
    },
    "example": {"ids": ["ann"]},
}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em;"
    "color-scheme:light dark}code{font-size:.95em}"
)


def body(schema: Mapping[str, Any], *parts: Mapping[str, Any] | str) -> dict[str, Any]:
    """What OpenAPI says about a body; parts are parameters and further types of media."""
    media = ["application/json", *(part for part in parts if isinstance(part, str))]
    content = {kind: {"schema": schema} for kind in media}
    found: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    parameters = [part for part in parts if not isinstance(part, str)]
    return {**found, "parameters": parameters} if parameters else found


def page(openapi: Mapping[str, Any]) -> str:
    """The interface as a page without scripts."""
    parts = []
    for path, methods in openapi["paths"].items():
        for method, about in methods.items():
            text = escape(about.get("description", "")).replace("\n\n", "</p><p>")
            names = [one["name"] for one in about.get("parameters", ())]
            extra = f"<p>Parameters: <code>{escape(', '.join(names))}</code></p>" if names else ""
            example = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            example = example.get("schema", {}).get("example")
            if example:
                extra += f"<p>Body, for example: <code>{escape(str(example))}</code></p>"
            title = f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            parts.append(f"{title}<p>{text}</p>{extra}")
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'><title>evergraph"
    return (
        f"<!doctype html><html lang=en><head>{head}</title><style>{STYLE}</style></head><body>"
        f"<h1>evergraph {escape(openapi['info']['version'])}</h1>"
        "<p>For programs: <a href='/openapi.json'>openapi.json</a>.</p>"
        f"{''.join(parts)}</body></html>"
    )
