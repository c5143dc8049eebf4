use homing::request::multipart::model;
use proptest::prelude::*;

const TYPE: &str = "multipart/form-data; boundary=XX";

fn part(disposition: &str, value: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n")
}

fn form(parts: &[String]) -> String {
    format!("{}--XX--\r\n", parts.concat())
}

fn audio() -> String {
    // A file may hold anything, a delimiter's beginning and a model's part without its line break among it.
    let noise = "RIFF\r\n--X \r\n\r\n--XContent-Disposition: form-data; name=\"model\"\r\n\r\nnot-this\r\n-";
    part("name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav", noise)
}

#[test]
fn the_model_is_found_before_and_after_the_file() {
    let named = part("name=\"model\"", "whisper-1");
    for parts in [[audio(), named.clone()], [named.clone(), audio()]] {
        assert_eq!(model(TYPE, form(&parts).as_bytes()), Some("whisper-1"));
    }
    let preamble = format!("ignored\r\n{}", form(std::slice::from_ref(&named)));
    assert_eq!(model(TYPE, preamble.as_bytes()), Some("whisper-1"));
    assert_eq!(model(TYPE, form(&[named, part("name=\"model\"", "last")]).as_bytes()), Some("last"));
    assert_eq!(model(TYPE, form(&[part("name=\"model\"", "")]).as_bytes()), Some(""));
    let longest = "é".repeat(256);
    assert_eq!(model(TYPE, form(&[part("name=\"model\"", &longest)]).as_bytes()), Some(longest.as_str()));
}

#[test]
fn content_types_are_read_as_clients_write_them() {
    let body = form(&[part("name=model", "m")]);
    for (content_type, expected) in [
        ("multipart/form-data; boundary=XX", Some("m")),
        ("Multipart/Form-Data;Boundary=\"XX\"", Some("m")),
        ("multipart/form-data; charset=utf-8; boundary=XX ; x=y", Some("m")),
        ("multipart/form-data; x=\"a;boundary=YY\"; boundary=XX", Some("m")),
        ("multipart/form-data; boundary=YY", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary", None),
        ("multipart/form-data", None),
        ("multipart/mixed; boundary=XX", None),
        ("application/json", None),
        ("", None),
    ] {
        assert_eq!(model(content_type, body.as_bytes()), expected, "{content_type}");
    }
}

#[test]
fn what_names_no_model_gives_none() {
    let named = part("name=\"model\"", "m");
    for body in [
        String::new(),
        "--XX".into(),
        "--XX--".into(),
        named.clone(),
        part("name=\"model\"", "m").replace("\r\n", "\n") + "--XX--",
        form(&[audio()]),
        form(&[part("name=\"models\"", "m")]),
        form(&[part("name=\"file\"; x=\"name=model\"", "m")]),
        form(&[part("name=\"model\"; filename=\"m\"", "m")]),
        form(&[part("name=\"model\"", &"m".repeat(257))]),
        form(&vec![part("name=\"x\"", "m"); 128].into_iter().chain([named.clone()]).collect::<Vec<_>>()),
        form(&[part(&format!("name=\"model\"{}", "\r\nx: y".repeat(16)), "m")]),
        "--XX\r\n\r\nno headers\r\n--XX--".into(),
    ] {
        assert_eq!(model(TYPE, body.as_bytes()), None, "{body}");
    }
    assert_eq!(model(TYPE, b"--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\xff\r\n--XX--"), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(content_type in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        model(&content_type, &bytes);
        model(TYPE, &bytes);
    }

    #[test]
    fn no_broken_form_panics(
        content_type in r#"multipart/form-data(; ?(boundary|x)?=?"?X{0,3}\\?"?){0,3}"#,
        body in r#"(--X{0,2}|-|\r\n|\r|\n|Content-Disposition:|form-data;|name=|"|\\|model|é){0,40}"#,
    ) {
        model(&content_type, body.as_bytes());
        model(TYPE, body.as_bytes());
    }
}
