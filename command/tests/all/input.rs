//! Texts that are no bytes, and torn ones.

use std::path::Path;

use warpbell_command::decode::Severity;
use warpbell_command::input::{InputError, parse, read};

#[test]
fn bytes_stay_as_they_are() {
    for bytes in [&[0, 1, 2, 255][..], b"\x00\x00", &[0xff; 64]] {
        let input = parse(bytes.to_vec()).unwrap();
        assert_eq!(input.bytes, bytes);
        assert_eq!(input.findings, []);
    }
}

#[test]
fn words_of_programs_sources_are_bytes() {
    let input = parse(b"0x00, 0x12, 0xab,\n0x34\n".to_vec()).unwrap();
    assert_eq!(input.bytes, [0, 0x12, 0xab, 0x34]);
}

#[test]
fn text_that_is_no_hex_is_named() {
    let input = parse(b"hello\n".to_vec()).unwrap();
    assert_eq!(input.bytes, b"hello\n");
    assert_eq!(input.findings[0].severity, Severity::Warning);
    assert!(
        input.findings[0]
            .text
            .starts_with("this is text, but no hexadecimal text")
    );
}

#[test]
fn torn_dumps_are_named() {
    let error = parse(b"00 11 2\n".to_vec()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1: \"2\" has an odd number of hex digits, so half a byte is missing"
    );
    let error = parse(b"00000000  00 11\n*\n00000020\n".to_vec()).unwrap_err();
    assert!(matches!(error, InputError::Squeezed { line: 2 }), "{error}");
    // What hexdump prints without options: words of 16 bits in the machine's order.
    let error = parse(b"0000000 0700 1200\n0000004\n".to_vec()).unwrap_err();
    assert!(
        matches!(error, InputError::Words { line: 1, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("words such as \"0700\", not bytes"),
        "{error}"
    );
    // A line is missing.
    let torn = parse(b"00000000: 0011 2233\n00000010: 4455\n".to_vec()).unwrap();
    assert_eq!(torn.bytes, [0, 0x11, 0x22, 0x33, 0x44, 0x55]);
    assert_eq!(torn.findings[0].offset, 4);
    assert!(
        torn.findings[0]
            .text
            .contains("begins at 0x10, but the lines before end at 0x4")
    );
}

#[test]
fn files_that_are_not_there_are_named() {
    let error = read(Path::new("/there/is/no/such"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read /there/is/no/such: No such file"),
        "{error}"
    );
    let error = read(Path::new("/dev/null")).unwrap_err().to_string();
    assert_eq!(error, "/dev/null is empty: there is nothing to decode");
}
