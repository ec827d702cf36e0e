//! Certificates in the form that programs get: only the blocks of a PEM file. Other text in a user's Secret, around or
//! inside the blocks, could end a command early or be read as something else. Renderers call it; pure.

/// Certificate chain and key as one PEM text, or why that is not possible.
pub fn bundle(chain: &str, key: &str) -> Result<String, &'static str> {
    let chain = blocks(chain).ok_or("the chain cannot be read")?;
    let key = blocks(key).ok_or("the key cannot be read")?;
    let certificates: Vec<_> = chain.iter().filter(|block| block.label == "CERTIFICATE").collect();
    let key = key.iter().find(|block| block.label.ends_with("PRIVATE KEY"));
    if certificates.is_empty() {
        return Err("the chain is empty");
    }
    let key = key.ok_or("there is no key")?;
    if key.label == "ENCRYPTED PRIVATE KEY" {
        return Err("the key is encrypted");
    }
    let mut text = String::new();
    certificates.into_iter().chain([key]).for_each(|block| block.write(&mut text));
    Ok(text)
}

struct Block<'a> {
    label: &'a str,
    base64: String,
}

impl Block<'_> {
    fn write(&self, text: &mut String) {
        text.push_str(&format!("-----BEGIN {}-----\n", self.label));
        let mut rest = &*self.base64;
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str(&format!("-----END {}-----\n", self.label));
    }
}

/// The PEM blocks of a text; none if one of them is malformed.
fn blocks(text: &str) -> Option<Vec<Block<'_>>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|it| it.strip_suffix("-----"))
        else {
            continue;
        };
        if !label.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b' ') {
            return None;
        }
        let end = format!("-----END {label}-----");
        let mut base64 = String::new();
        loop {
            let line = lines.next()?;
            if line == end {
                break;
            }
            let usual =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
            if !line.bytes().all(usual) {
                return None;
            }
            base64.push_str(line);
        }
        blocks.push(Block { label, base64 });
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHAIN: &str =
        "subject=x\n-----BEGIN CERTIFICATE-----\nAAAA\n\nBBBB\n-----END CERTIFICATE-----\n\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\r\nCCCC\r\n-----END PRIVATE KEY-----";

    #[test]
    fn only_the_blocks_are_taken_and_no_line_is_empty() {
        assert_eq!(
            bundle(CHAIN, KEY).unwrap(),
            "-----BEGIN CERTIFICATE-----\nAAAABBBB\n-----END CERTIFICATE-----\n\
             -----BEGIN PRIVATE KEY-----\nCCCC\n-----END PRIVATE KEY-----\n"
        );
    }

    #[test]
    fn what_is_no_certificate_or_key_is_told() {
        assert_eq!(bundle("", KEY), Err("the chain is empty"));
        assert_eq!(bundle(CHAIN, CHAIN), Err("there is no key"));
        let broken = CHAIN.replace("BBBB", "set server x/y state maint;");
        assert_eq!(bundle(&broken, KEY), Err("the chain cannot be read"));
        assert_eq!(bundle("-----BEGIN CERTIFICATE-----\nAA", KEY), Err("the chain cannot be read"));
    }

    proptest! {
        /// Text around the blocks is dropped; foreign text inside a block makes the PEM invalid.
        #[test]
        fn nothing_but_blocks_reaches_haproxy(text in "[ -~\r\n\0\t]{0,40}", within in any::<bool>()) {
            let chain = match within {
                true => CHAIN.replace("BBBB", &text),
                false => format!("{text}\n{CHAIN}\n{text}"),
            };
            let written = bundle(&chain, KEY);
            for line in written.iter().flat_map(|written| written.lines()) {
                let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
                let head = line.starts_with("-----BEGIN ") || line.starts_with("-----END ");
                prop_assert!(head || line.bytes().all(usual), "{line}");
                prop_assert!(!line.is_empty());
            }
        }
    }
}
