"""Conversations through the OpenAI and Anthropic SDKs. Each yields its turns; a history grows as an agent's does."""

import uuid

import anthropic
import openai

from turn import Turn

SYSTEM = "You are careful. " * 200
OPENING = "Read the file and say what it does. " * 20
QUESTIONS = [OPENING, "And the next one?", "What calls it?", "Thank you."]
ANSWER_TOKENS = 64
GPT = "gpt-5.5"
CLAUDE = "claude-sonnet-5"


def openai_client(stand, **options):
    # An id of the conversation's own, for its chat and its responses apart.
    headers = {"x-session-id": str(uuid.uuid4())}
    return openai.OpenAI(base_url=f"{stand.url}/v1", api_key="any", default_headers=headers, **options)


def anthropic_client(stand):
    return anthropic.Anthropic(base_url=stand.url, api_key="any")


def openai_chat(stand):
    client = openai_client(stand)
    history = [{"role": "system", "content": SYSTEM}]
    for number, question in enumerate(QUESTIONS):
        history.append({"role": "user", "content": question})
        streamed = number % 2 == 1
        raw = client.chat.completions.with_raw_response.create(
            model=GPT, messages=history, max_tokens=ANSWER_TOKENS, stream=streamed
        )
        answer = raw.parse()
        if streamed:
            text = "".join(choice.delta.content or "" for chunk in answer for choice in chunk.choices)
        else:
            text = answer.choices[0].message.content
        history.append({"role": "assistant", "content": text})
        yield Turn.of("OpenAI SDK, chat", how(streamed), raw.headers, text)


def openai_responses(stand):
    client = openai_client(stand)
    history = []
    for number, question in enumerate(QUESTIONS):
        history.append({"role": "user", "content": question})
        streamed = number % 2 == 1
        raw = client.responses.with_raw_response.create(
            model=GPT, instructions=SYSTEM, input=history, max_output_tokens=ANSWER_TOKENS, stream=streamed
        )
        answer = raw.parse()
        if streamed:
            text = "".join(event.delta for event in answer if event.type == "response.output_text.delta")
        else:
            text = answer.output_text
        history.append({"role": "assistant", "content": text})
        yield Turn.of("OpenAI SDK, responses", how(streamed), raw.headers, text)


def anthropic_messages(stand):
    """Sends no id: its opening tells the conversation apart. Between its turns a stream is cancelled midway."""
    client = anthropic_client(stand)
    history = []
    for number, question in enumerate(QUESTIONS):
        history.append({"role": "user", "content": question})
        request = {"model": CLAUDE, "system": SYSTEM, "messages": history, "max_tokens": ANSWER_TOKENS}
        if number == 2:
            yield cancelled(stand, client, request)
        streamed = number % 2 == 1
        raw = client.messages.with_raw_response.create(**request, stream=streamed)
        answer = raw.parse()
        if streamed:
            text = "".join(deltas(answer))
        else:
            text = answer.content[0].text
        history.append({"role": "assistant", "content": text})
        yield Turn.of("Anthropic SDK, messages", how(streamed), raw.headers, text)


def cancelled(stand, client, request):
    """A turn whose client leaves after the first words, while the engine is at it for as long as it takes."""
    stand.fault("stall", after_tokens=3)
    try:
        raw = client.messages.with_raw_response.create(**request, stream=True)
        answer = raw.parse()
        text = next(deltas(answer))
        stand.until_in_flight(1)
        answer.close()
        stand.until_in_flight(0)
    finally:
        stand.fault("ok")
    return Turn.of("Anthropic SDK, messages", "cancelled", raw.headers, text)


def openai_retried(stand):
    """A turn at a time when every replica refuses with 503: the SDK asks again of its own accord, and finds its home."""
    refused = []

    def note(response):
        if response.status_code == 503:
            refused.append(response)
            stand.fault("ok")
            stand.until_up()

    http = openai.DefaultHttpxClient(event_hooks={"response": [note]})
    client = openai_client(stand, http_client=http, max_retries=10)
    history = [{"role": "system", "content": SYSTEM}]
    for number, question in enumerate(QUESTIONS[:2]):
        history.append({"role": "user", "content": question})
        if number == 1:
            stand.fault("starting")
        raw = client.chat.completions.with_raw_response.create(model=GPT, messages=history, max_tokens=ANSWER_TOKENS)
        text = raw.parse().choices[0].message.content
        history.append({"role": "assistant", "content": text})
        yield Turn.of("OpenAI SDK, chat", f"{len(refused)} x 503 before" if number else how(False), raw.headers, text)
    if not refused:
        yield Turn("OpenAI SDK, chat", "never refused", "-", "-", "")


def deltas(events):
    return (event.delta.text for event in events if event.type == "content_block_delta")


def how(streamed):
    return "streamed" if streamed else "whole"
