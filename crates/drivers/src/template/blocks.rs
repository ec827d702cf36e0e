//! Checks that each block of a Go template is closed once. `gotmpl` takes the end of the file as the end of all blocks,
//! and a stray `{{ end }}` as the end of the template; either would leave half a configuration. Pure; `go` calls it.

/// An error has the line, and what is wrong there.
pub(super) fn check(source: &str) -> Result<(), (usize, String)> {
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    while let Some(begin) = source[at..].find("{{").map(|found| at + found) {
        let end = action(source, begin);
        let line = source[..begin].matches('\n').count() + 1;
        let text = source[begin + 2..end].trim_start_matches('-').trim_start();
        let word: String = text.chars().take_while(|c| c.is_ascii_alphabetic()).collect();
        match word.as_str() {
            "if" | "range" | "with" | "define" | "block" => open.push((line, word)),
            "end" if open.pop().is_none() => {
                return Err((line, "there is nothing for {{ end }} to end".to_owned()));
            }
            "else" if open.is_empty() => {
                return Err((line, "there is nothing before {{ else }}".to_owned()));
            }
            _ => {}
        }
        at = end;
    }
    match open.pop() {
        Some((line, word)) => Err((line, format!("{{{{ {word} }}}} has no {{{{ end }}}}"))),
        None => Ok(()),
    }
}

/// The end of the action that begins here. Strings and comments in it may contain anything.
fn action(source: &str, begin: usize) -> usize {
    let text = &source[begin + 2..];
    let inner = text.trim_start_matches('-').trim_start();
    let mut at = source.len() - inner.len();
    if inner.starts_with("/*") {
        let comment = inner.find("*/").unwrap_or(inner.len());
        at += comment;
        return source[at..].find("}}").map_or(source.len(), |end| at + end);
    }
    let mut quote = None;
    let mut chars = source[at..].char_indices().peekable();
    while let Some((offset, char)) = chars.next() {
        match (quote, char) {
            (None, '}') if chars.peek().is_some_and(|(_, next)| *next == '}') => {
                return at + offset;
            }
            (None, '"' | '`' | '\'') => quote = Some(char),
            (Some(open), char) if open == char => quote = None,
            (Some('"' | '\''), '\\') => drop(chars.next()),
            _ => {}
        }
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_closed_once() {
        let fine = [
            "",
            "a {{ .X }} b",
            "{{ if .A }}{{ else if .B }}{{ else }}{{ end }}",
            "{{- range .X -}}{{- with .Y }}{{ end -}}{{- end }}",
            "{{ define \"x\" }}{{ end }}{{ block \"y\" . }}{{ end }}",
            "{{ if eq .X \"}}\" }}{{ `{{ if }}` }}{{ \"\\\"{{ end }}\" }}{{ end }}",
            "{{/* {{ if }} */}}{{- /* }} {{ range */ -}}",
            "{{ .Range }}{{ $end := 1 }}{{ printf \"end\" }}",
        ];
        for source in fine {
            assert_eq!(check(source), Ok(()), "{source}");
        }
        let bad = [
            ("a\n{{ if true }}", 2, "{{ if }} has no {{ end }}"),
            ("{{ range .X }}\n{{ with .Y }}{{ end }}", 1, "{{ range }} has no {{ end }}"),
            ("a\n{{ end }}\nb", 2, "there is nothing for {{ end }} to end"),
            ("{{ else }}", 1, "there is nothing before {{ else }}"),
        ];
        for (source, line, why) in bad {
            assert_eq!(check(source), Err((line, why.to_owned())), "{source}");
        }
    }
}
