"""Answers in the formats of `/v1/responses` and `/v1/messages`, whole and as events; and Ollama's
descriptions of its models.
"""

import json
from typing import Any

PATHS = ("/v1/responses", "/v1/messages")


def ollama(path: str, models: tuple[str, ...], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """(status, document)"""
    if path == "/api/version":
        return 200, {"version": "0.12.0"}
    if path == "/api/ps":
        return 200, {"models": [{"name": name, "model": name} for name in models[:1]]}
    if body.get("model") not in models:
        return 404, {"error": "model not found"}
    return 200, {"model_info": {"general.architecture": "llama"}, "capabilities": ["completion"]}


def pieces(path: str, text: str, words: int, body: dict[str, Any]) -> list[bytes]:
    """One document, or the events of a stream."""
    out = len(text.split())
    if path == "/v1/messages":
        return _messages(text, words, out, body)
    usage = {"input_tokens": words, "output_tokens": out, "total_tokens": words + out}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": "m-1", "role": "assistant", "status": "completed"}
    whole = {
        "id": "resp-1",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": body["model"],
        "output": [{**message, "content": content}],
        "usage": usage,
        "error": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not body.get("stream"):
        return [json.dumps(whole).encode()]
    delta = {"item_id": "m-1", "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.output_text.delta", "delta": f"{part} ", **delta}
        for part in text.split(" ")
    ]
    return _events([*events, {"type": "response.completed", "response": whole}])


def _messages(text: str, words: int, out: int, body: dict[str, Any]) -> list[bytes]:
    head = {"id": "msg-1", "type": "message", "role": "assistant", "model": body["model"]}
    if not body.get("stream"):
        usage = {"input_tokens": words, "output_tokens": out}
        content = [{"type": "text", "text": text}]
        return [json.dumps({**head, "content": content, "usage": usage}).encode()]
    begun = {**head, "content": [], "usage": {"input_tokens": words, "output_tokens": 1}}
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
        for part in text.split(" ")
    ]
    end = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": out}}
    return _events([{"type": "message_start", "message": begun}, *deltas, end])


def _events(rows: list[dict[str, Any]]) -> list[bytes]:
    found = [{**row, "sequence_number": number} for number, row in enumerate(rows)]
    return [f"event: {row['type']}\ndata: {json.dumps(row)}\n\n".encode() for row in found]
