//! Two columns of plain text.

/// The width of lines, which does not depend on the terminal.
const WIDTH: usize = 100;

/// Rows of a name and a text that wraps below itself.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<(String, String)>,
}

impl Table {
    pub(crate) fn row(&mut self, name: &str, text: impl Into<String>) {
        self.rows.push((name.to_owned(), text.into()));
    }

    /// Renders the rows, indented by two, with names padded to the longest.
    pub(crate) fn render(&self) -> String {
        let name_width = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let text_width = WIDTH.saturating_sub(name_width + 4).max(20);
        let mut rendered = String::new();
        for (name, text) in &self.rows {
            let mut name = name.as_str();
            for line in wrap(text, text_width) {
                rendered += format!("  {name:name_width$}  {line}").trim_end();
                rendered += "\n";
                name = "";
            }
        }
        rendered
    }
}

/// Breaks a text at spaces. A word that is too long (a path) gets a line of its own. Returns at least one
/// line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let word_width = word.chars().count();
        if used > 0 && used + 1 + word_width > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += word_width;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_padded_and_texts_wrap() {
        let mut table = Table::default();
        table.row("a", "short");
        table.row("longer", "word ".repeat(30));
        table.row("", "");
        let rendered = table.render();
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!(lines[0], "  a       short");
        assert!(lines[1].starts_with("  longer  word word"), "{rendered}");
        assert!(lines[2].starts_with("          word"), "{rendered}");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{rendered}");
        assert_eq!(lines[3], "");
    }

    #[test]
    fn a_long_word_is_not_broken() {
        assert_eq!(wrap("a 0123456789 b", 5), ["a", "0123456789", "b"]);
    }
}
