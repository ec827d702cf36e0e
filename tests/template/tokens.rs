//! How HAProxy reads a line of its configuration: words, quotes, escapes, comments, continuations. For
//! tests that ask what a file really says.

/// The directives of a file, each as its words; lines without words are none. None: it cannot be read.
pub(crate) fn directives(text: &str) -> Option<Vec<Vec<String>>> {
    let mut lines = Vec::new();
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut chars = text.chars().peekable();
    let mut quoted = None;
    while let Some(char) = chars.next() {
        match (quoted, char) {
            (Some(quote), char) if char == quote => quoted = None,
            (Some(_), '\n') => return None,
            (None, '\n') => {
                words.extend(word.take());
                if !words.is_empty() {
                    lines.push(std::mem::take(&mut words));
                }
            }
            (None, '#') => {
                while chars.peek().is_some_and(|next| *next != '\n') {
                    chars.next();
                }
            }
            (None, ' ' | '\t' | '\r') => words.extend(word.take()),
            (None, '"' | '\'') => {
                quoted = Some(char);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match chars.next()? {
                // The line goes on.
                '\n' => words.extend(word.take()),
                escaped @ (' ' | '#' | '\\' | '"' | '\'') => {
                    word.get_or_insert_default().push(escaped);
                }
                'n' => word.get_or_insert_default().push('\n'),
                'r' => word.get_or_insert_default().push('\r'),
                't' => word.get_or_insert_default().push('\t'),
                'x' => return None,
                other => word.get_or_insert_default().extend(['\\', other]),
            },
            (Some('"'), '$') => return None,
            (_, char) => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    if !words.is_empty() {
        lines.push(words);
    }
    if quoted.is_some() { None } else { Some(lines) }
}

#[test]
fn a_line_is_read_as_haproxy_reads_it() {
    let read =
        |text: &str| directives(text).map(|lines| lines.iter().map(|l| l.join("|")).collect());
    let lines =
        |lines: &[&str]| Some(lines.iter().map(|l| (*l).to_owned()).collect::<Vec<String>>());
    assert_eq!(read("a b\n\n\tc # d\n"), lines(&["a|b", "c"]));
    assert_eq!(read("a \"b c\" 'd # e'\n"), lines(&["a|b c|d # e"]));
    assert_eq!(read("a\\ b \\#c ^x\\.y$\n"), lines(&["a b|#c|^x\\.y$"]));
    assert_eq!(read("a \\\n b\n"), lines(&["a|b"]));
    assert_eq!(read("a \"b\n"), None);
}
