//! Text as HTML.

/// Escapes text for use between tags and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || turns_direction(c) => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns whether a character changes the direction of the text after it.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Keeps the options of a command line on one line: a browser breaks lines behind a hyphen. The text is HTML.
fn with_whole_options(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    let mut words = text.split("--");
    html += words.next().unwrap_or_default();
    for after in words {
        let len = after.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(after.len());
        let (option, rest) = after.split_at(len);
        match option.is_empty() {
            true => html += "--",
            false => html += &format!("<span class=\"whole\">--{option}</span>"),
        }
        html += rest;
    }
    html
}

/// Escapes a sentence, marks text between backticks as code, and keeps options on one line.
pub(crate) fn prose(text: &str) -> String {
    let escaped = with_whole_options(&escape(text));
    let parts: Vec<&str> = escaped.split('`').collect();
    // With an odd number of backticks there is no markup.
    if parts.len().is_multiple_of(2) {
        return escaped;
    }
    let mut html = String::with_capacity(escaped.len());
    for (index, part) in parts.iter().enumerate() {
        match index % 2 {
            0 => html += part,
            _ => html += &format!("<code>{part}</code>"),
        }
    }
    html
}

/// Escapes the name of a backend, and lets it break before its policy.
pub(crate) fn name(text: &str) -> String {
    escape(text).replace('+', "+<wbr>").replace(':', ":<wbr>")
}

/// Cuts a text to this many characters and marks the cut.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(escape("plain 4 KiB × 32"), "plain 4 KiB × 32");
        assert_eq!(
            escape("<a href=\"x\" title='y'>&amp;"),
            "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;amp;"
        );
        assert_eq!(escape("a\0\u{1B}[31m\u{202E}b\n"), "a\u{FFFD}\u{FFFD}[31m\u{FFFD}b\n");
    }

    #[test]
    fn backticks_are_markup_and_nothing_else_is() {
        assert_eq!(prose("use `a<b>()` or `c`"), "use <code>a&lt;b&gt;()</code> or <code>c</code>");
        assert_eq!(prose("a ` b <i>"), "a ` b &lt;i&gt;");
    }

    /// The report showed `-` at the end of a line and `-seconds` at the start of the next.
    #[test]
    fn options_stay_on_one_line() {
        assert_eq!(prose("more --seconds!"), "more <span class=\"whole\">--seconds</span>!");
        assert_eq!(
            prose("`--block-size`"),
            "<code><span class=\"whole\">--block-size</span></code>"
        );
        assert_eq!(prose("a -- b --"), "a -- b --");
    }

    #[test]
    fn names_break_where_they_are_joined() {
        assert_eq!(name("uring+buffered"), "uring+<wbr>buffered");
        assert_eq!(name("fio:<b>"), "fio:<wbr>&lt;b&gt;");
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("äöüäöü", 4), "äöü…");
    }
}
