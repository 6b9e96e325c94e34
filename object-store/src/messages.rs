//! Compares the messages of this crate with `tests/messages.txt`, so that a new or changed one is read in review.
//! `RINGMAIN_UPDATE_MESSAGES=1` rewrites the file.

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");

#[test]
fn every_message_is_in_the_snapshot() {
    let all = [
        crate::remote::messages::messages(),
        crate::disk_cache::messages::messages(),
        crate::local_store::messages::messages(),
    ];
    let text: String = all.concat().iter().map(|message| format!("{message}\n")).collect();
    assert!(!text.contains("5ecret"), "{text}");
    if std::env::var_os("RINGMAIN_UPDATE_MESSAGES").is_some() {
        std::fs::write(SNAPSHOT, &text).unwrap();
    }
    let expected = std::fs::read_to_string(SNAPSHOT).unwrap();
    assert_eq!(text, expected, "look at tests/messages.txt");
}
