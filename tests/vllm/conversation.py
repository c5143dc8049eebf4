"""A conversation as an agent holds it: every turn sends the whole history again and reads a streamed answer."""

import http.client
import json
import random
import urllib.parse
import uuid
from dataclasses import dataclass

from servers import MODEL, Failure

# Long enough for a turn that waits for room behind a whole conversation, on a slow machine.
ANSWERED_WITHIN_S = 1800
WORDS = [
    "read",
    "the",
    "file",
    "and",
    "find",
    "where",
    "test",
    "fails",
    "then",
    "write",
    "a",
    "patch",
    "run",
    "it",
    "again",
]
TOOL = "Reads a file of the project."
TOOL_INPUT = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@dataclass(frozen=True)
class Shape:
    """How many turns a conversation has, and the words of its texts."""

    turns: int
    system: int
    opening: int
    later: int


SHORT = Shape(turns=5, system=150, opening=300, later=60)


@dataclass
class Turn:
    """One request and what came back. Token counts are those that the engine reported to the client."""

    dialect: str
    conversation: int
    number: int
    replica: str
    decision: str
    prompt_tokens: int
    cached_tokens: int


@dataclass
class Answer:
    text: str
    prompt_tokens: int
    cached_tokens: int


class OpenAiChat:
    """Chat completions as an OpenAI client asks for them. It sends no id: the opening tells conversations apart."""

    name = "openai"
    path = "/v1/chat/completions"

    def __init__(self):
        self.headers = {"Authorization": "Bearer none"}

    def body(self, system, messages):
        function = {"name": "read_file", "description": TOOL, "parameters": TOOL_INPUT}
        return {
            "model": MODEL,
            "messages": [{"role": "system", "content": system}, *messages],
            "tools": [{"type": "function", "function": function}],
            "max_completion_tokens": 24,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def read(self, events):
        text, usage = "", None
        for event in events:
            if event == "[DONE]" and usage:
                return Answer(text, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])
            chunk = json.loads(event)
            text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
            usage = chunk.get("usage") or usage
        raise Failure("an OpenAI stream ended without its usage or without [DONE]")


class AnthropicMessages:
    """Messages as Claude Code asks for them, with its headers and the order of its body's keys."""

    name = "anthropic"
    path = "/v1/messages"

    def __init__(self):
        self.headers = {
            "anthropic-version": "2023-06-01",
            "x-api-key": "none",
            "x-app": "cli",
            "user-agent": "claude-cli/2.0 (external, cli)",
            "x-claude-code-session-id": str(uuid.uuid4()),
        }

    def body(self, system, messages):
        return {
            "model": MODEL,
            "messages": [
                {**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages
            ],
            "system": [{"type": "text", "text": system}],
            "tools": [{"name": "read_file", "description": TOOL, "input_schema": TOOL_INPUT}],
            "max_tokens": 24,
            "temperature": 0,
            "stream": True,
        }

    def read(self, events):
        text, usage = "", None
        for event in map(json.loads, events):
            if event["type"] == "content_block_delta":
                text += event["delta"].get("text", "")
            elif event["type"] == "message_delta":
                usage = event["usage"]
            elif event["type"] == "message_stop" and usage:
                cached = usage["cache_read_input_tokens"]
                return Answer(text, usage["input_tokens"] + usage["cache_creation_input_tokens"] + cached, cached)
        raise Failure("an Anthropic stream ended without its usage or without message_stop")


def hold(base, dialect, number, shape=SHORT):
    """Holds one conversation and yields its turns. Its opening is its own, its system prompt everyone's."""
    text = random.Random(number)
    system = "You help with code. " + prose(random.Random("system"), shape.system)
    messages = []
    for turn in range(1, shape.turns + 1):
        words = shape.opening if turn == 1 else shape.later
        messages.append({"role": "user", "content": f"Task {number}: " + prose(text, words)})
        headers, answer = post(base, dialect, dialect.body(system, messages))
        messages.append({"role": "assistant", "content": answer.text or "Done."})
        yield Turn(
            dialect.name,
            number,
            turn,
            headers.get("x-homing-replica", "none"),
            headers.get("x-homing-decision", "none"),
            answer.prompt_tokens,
            answer.cached_tokens,
        )


def prose(source, words):
    return " ".join(source.choices(WORDS, k=words))


def post(base, dialect, body):
    """Sends a turn and reads its answer to the end. Returns the response's headers with it."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=ANSWERED_WITHIN_S)
    try:
        headers = {"content-type": "application/json", **dialect.headers}
        connection.request("POST", dialect.path, json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise Failure(f"{dialect.path} answered {response.status}: {response.read(2000).decode(errors='replace')}")
        answer = dialect.read(events_of(response))
        # A client that left before the stream's end would be one that gave up.
        response.read()
        return response.headers, answer
    finally:
        connection.close()


def events_of(response):
    """The data of each server-sent event."""
    for line in response:
        if line.startswith(b"data:"):
            yield line.removeprefix(b"data:").strip().decode()
