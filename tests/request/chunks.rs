use homing::request::chunks::{Chunks, InvalidChunk};
use proptest::prelude::*;

/// How much of `bytes` is one body; none while it is not over.
fn end(bytes: &[u8]) -> Result<Option<usize>, InvalidChunk> {
    let mut chunks = Chunks::default();
    let read = chunks.advance(bytes)?;
    Ok(chunks.is_over().then_some(read))
}

#[test]
fn the_end_is_found_and_what_follows_is_left() {
    for body in [
        "0\r\n\r\n",
        "00000\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "A\r\n0123456789\r\na;x=\"y\"\r\n0\r\n\r\n56789\r\n0;z\r\n\r\n",
        "1\r\n\n\r\n0\r\nx: 1\r\ny:\t2\r\n\r\n",
    ] {
        assert_eq!(end(format!("{body}GET / HTTP/1.1\r\n").as_bytes()), Ok(Some(body.len())), "{body:?}");
        for cut in 0..body.len() {
            assert_eq!(end(&body.as_bytes()[..cut]), Ok(None), "{:?}", &body[..cut]);
        }
    }
}

#[test]
fn what_two_could_read_differently_is_an_error() {
    for body in [
        "\r\n",
        "\n",
        "g\r\n",
        "0x1\r\n",
        "-1\r\n",
        "+1\r\n",
        " 1\r\n",
        "1 \r\n",
        "1\t;x\r\n",
        "1\n",
        "1\rx",
        "1;x\n",
        "1;x\ry",
        "1;\0\r\n",
        "1;\u{7f}\r\n",
        ";x\r\n",
        "fffffffffffffffff\r\n",
        "0000000000000001\r\n",
        "1\r\nxx",
        "1\r\nx\n",
        "1\r\nx\rx",
        "0\r\n x: 1\r\n\r\n",
        "0\r\n\tx",
        "0\r\n\n",
        "0\r\nx: 1\n",
        "0\r\nx: 1\ry",
        "0\r\n\rx",
        "0\n",
    ] {
        assert_eq!(end(body.as_bytes()), Err(InvalidChunk), "{body:?}");
    }
}

#[test]
fn extensions_and_trailers_have_a_limit_in_all() {
    let extensions = format!("1;{}\r\nx\r\n", "e".repeat(1000)).repeat(20);
    assert_eq!(end(format!("{extensions}0\r\n\r\n").as_bytes()), Err(InvalidChunk));
    let trailers = "x: 1\r\n".repeat(5000);
    assert_eq!(end(format!("0\r\n{trailers}\r\n").as_bytes()), Err(InvalidChunk));
}

proptest! {
    #[test]
    fn any_split_reads_the_same(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..5),
        cuts in prop::collection::vec(1..20usize, 1..60),
    ) {
        let mut body: Vec<u8> = Vec::new();
        for piece in &pieces {
            body.extend(format!("{:x}\r\n", piece.len()).bytes().chain(piece.iter().copied()).chain(*b"\r\n"));
        }
        body.extend(b"0\r\n\r\n");
        let (mut chunks, mut rest) = (Chunks::default(), [&body[..], b"NEXT"].concat());
        let mut read = 0;
        for cut in cuts.iter().cycle() {
            let part = rest.len().min(*cut);
            let taken = chunks.advance(&rest[..part]).expect("a sound body");
            read += taken;
            rest.drain(..taken);
            if chunks.is_over() {
                break;
            }
        }
        prop_assert_eq!((read, rest.as_slice()), (body.len(), &b"NEXT"[..]));
        prop_assert_eq!(chunks.advance(b"0\r\n\r\n"), Ok(0), "what is over takes nothing more");
    }

    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut chunks = Chunks::default();
        if let Ok(read) = chunks.advance(&bytes) {
            prop_assert!(read <= bytes.len());
            prop_assert!(read == bytes.len() || chunks.is_over());
        }
    }
}
