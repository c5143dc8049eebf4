//! The chat template: from a request's JSON, in any dialect, to tokens.
//!
//! It is stable in its prefix: the prompt of the next turn begins with the prompt of this one, followed by the generated
//! tokens. Only what a model would see counts, so a cache mark that moves from message to message changes nothing.

use serde_json::Value;

use super::tokens::{ASSISTANT, END, SYSTEM, TOOL, USER, tokenize};

/// One message of the conversation: the token that opens it, and its text.
#[derive(Debug, PartialEq)]
pub struct Message {
    opens_with: u32,
    text: String,
}

/// The tokens of a conversation, up to where the model has the word.
pub fn tokens(messages: &[Message]) -> impl Iterator<Item = u32> + '_ {
    let said = messages.iter().flat_map(|message| {
        let text = tokenize(&message.text);
        std::iter::once(message.opens_with).chain(text).chain(std::iter::once(END))
    });
    said.chain(std::iter::once(ASSISTANT))
}

/// The conversation of a `/v1/chat/completions` body. `None` if there is none.
pub fn chat(body: &Value) -> Option<Vec<Message>> {
    let messages = body["messages"].as_array()?;
    let mut rendered: Vec<_> = tools(body).into_iter().collect();
    rendered.extend(messages.iter().map(|message| {
        let mut text = plain(&message["content"]);
        if let Some(calls) = message["tool_calls"].as_array() {
            calls.iter().for_each(|call| text += &called(&call["function"]["name"], &call["function"]["arguments"]));
        }
        Message { opens_with: role(&message["role"]), text }
    }));
    Some(rendered)
}

/// The conversation of a `/v1/messages` body. `None` if there is none.
pub fn messages(body: &Value) -> Option<Vec<Message>> {
    let messages = body["messages"].as_array()?;
    let mut rendered: Vec<_> = tools(body).into_iter().collect();
    if !body["system"].is_null() {
        rendered.push(Message { opens_with: SYSTEM, text: plain(&body["system"]) });
    }
    rendered.extend(messages.iter().map(said));
    Some(rendered)
}

/// The conversation of a `/v1/responses` body. `None` if there is none.
pub fn responses(body: &Value) -> Option<Vec<Message>> {
    let mut rendered: Vec<_> = tools(body).into_iter().collect();
    if !body["instructions"].is_null() {
        rendered.push(Message { opens_with: SYSTEM, text: plain(&body["instructions"]) });
    }
    match &body["input"] {
        Value::String(text) => rendered.push(Message { opens_with: USER, text: text.clone() }),
        Value::Array(items) => rendered.extend(items.iter().map(|item| match item["type"].as_str() {
            Some("function_call") => Message { opens_with: ASSISTANT, text: called(&item["name"], &item["arguments"]) },
            Some("function_call_output") => Message { opens_with: TOOL, text: plain(&item["output"]) },
            _ => said(item),
        })),
        _ => return None,
    }
    Some(rendered)
}

fn said(message: &Value) -> Message {
    Message { opens_with: role(&message["role"]), text: plain(&message["content"]) }
}

fn role(role: &Value) -> u32 {
    match role.as_str() {
        Some("system" | "developer") => SYSTEM,
        Some("assistant") => ASSISTANT,
        Some("tool" | "function") => TOOL,
        _ => USER,
    }
}

/// Tools are told to the model before anything else.
fn tools(body: &Value) -> Option<Message> {
    let tools = body["tools"].as_array().filter(|tools| !tools.is_empty())?;
    let text = tools.iter().map(|tool| without_cache_marks(tool).to_string()).collect();
    Some(Message { opens_with: SYSTEM, text })
}

/// The text of a content: a string, or a list of parts.
fn plain(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(plain).collect(),
        part => part_text(part),
    }
}

fn part_text(part: &Value) -> String {
    match part["type"].as_str() {
        Some("text" | "input_text" | "output_text") => {
            let text = part["text"].as_str().unwrap_or_default();
            // Claude Code opens its system prompt with a line that differs in every request. vLLM drops it too.
            if text.starts_with("x-anthropic-billing-header") { String::new() } else { text.to_owned() }
        }
        Some("tool_use") => called(&part["name"], &part["input"]),
        Some("tool_result") => plain(&part["content"]),
        Some("thinking") => part["thinking"].as_str().unwrap_or_default().to_owned(),
        _ => without_cache_marks(part).to_string(),
    }
}

fn called(name: &Value, arguments: &Value) -> String {
    format!("{}({})", name.as_str().unwrap_or_default(), plain(arguments))
}

fn without_cache_marks(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("cache_control");
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(messages: Option<Vec<Message>>) -> Vec<u32> {
        tokens(&messages.unwrap()).collect()
    }

    #[test]
    fn the_next_turn_begins_with_this_one_and_the_answer() {
        let tools = json!([{"type": "function", "function": {"name": "run"}}]);
        let first = json!({"tools": tools, "messages": [
            {"role": "system", "content": "You help."}, {"role": "user", "content": "Hello there"}]});
        let second = json!({"tools": tools, "messages": [
            {"role": "system", "content": "You help."}, {"role": "user", "content": "Hello there"},
            {"role": "assistant", "content": "abc def "}, {"role": "user", "content": "More"}]});
        let mut expected = of(chat(&first));
        expected.extend(tokenize("abc def ").chain([END]));
        assert!(of(chat(&second)).starts_with(&expected));
    }

    #[test]
    fn the_dialects_agree_and_cache_marks_do_not_count() {
        let text = |text: &str| json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
        let anthropic = json!({"system": text("You help."), "messages": [
            {"role": "user", "content": text("Hello")}, {"role": "assistant", "content": text("abc ")},
            {"role": "user", "content": "More"}]});
        let openai = json!({"messages": [
            {"role": "system", "content": "You help."}, {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "abc "}, {"role": "user", "content": "More"}]});
        let responses_body = json!({"instructions": "You help.", "input": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "abc "}]},
            {"role": "user", "content": [{"type": "input_text", "text": "More"}]}]});
        assert_eq!(of(messages(&anthropic)), of(chat(&openai)));
        assert_eq!(of(responses(&responses_body)), of(chat(&openai)));
    }

    #[test]
    fn tool_calls_and_their_results_are_part_of_the_prompt() {
        let with = |result: &str| {
            of(messages(&json!({"messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "name": "run", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "content": result}]}]})))
        };
        assert_ne!(with("one"), with("two"));
        assert!(with("a longer result").len() > with("short").len());
    }

    #[test]
    fn a_line_that_changes_with_every_request_is_dropped() {
        let with = |header: &str| {
            let system = json!([{"type": "text", "text": header}, {"type": "text", "text": "You help."}]);
            of(messages(&json!({"system": system, "messages": []})))
        };
        assert_eq!(with("x-anthropic-billing-header: cch=1"), with("x-anthropic-billing-header: cch=2"));
    }

    #[test]
    fn a_body_without_a_conversation_has_none() {
        assert!(chat(&json!({})).is_none() && messages(&json!({"messages": 1})).is_none());
        assert!(responses(&json!({"input": null})).is_none());
    }
}
