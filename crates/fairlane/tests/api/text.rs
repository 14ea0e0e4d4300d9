//! Tokens as text: on one line, and nearly as rustfmt sets them.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

pub(crate) fn text(tokens: impl ToTokens) -> String {
    let mut text = String::new();
    set(tokens.to_token_stream(), &mut text);
    text
}

fn set(tokens: TokenStream, text: &mut String) {
    let mut is_joint = false;
    for token in tokens {
        let follows = std::mem::take(&mut is_joint);
        let mut add = |word: &str| {
            if !follows && is_apart(text, word) {
                text.push(' ');
            }
            text.push_str(word);
        };
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{ ", " }"),
                    Delimiter::None => ("", ""),
                };
                add(open);
                set(group.stream(), text);
                if open == "{ " && text.ends_with(',') {
                    text.pop();
                }
                text.push_str(close);
            }
            TokenTree::Punct(sign) => {
                add(sign.as_char().encode_utf8(&mut [0; 4]));
                is_joint = sign.spacing() == Spacing::Joint;
            }
            token => add(&token.to_string()),
        }
    }
}

/// Whether a space separates `text` from the next word.
fn is_apart(text: &str, word: &str) -> bool {
    let Some(before) = text.chars().last() else {
        return false;
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = text.rsplit(|c| !is_name(c)).next().unwrap_or_default();
    let is_keyword = ["as", "const", "dyn", "in", "mut", "where"].contains(&name);
    match word.chars().next() {
        _ if " ([<&?!*#'".contains(before) || text.ends_with("::") => false,
        Some(',' | ';' | ':' | '?' | '>') => false,
        Some('(') => !(is_name(before) || before == '>') || is_keyword || text.ends_with("->"),
        Some('<') => !is_name(before) || is_keyword,
        _ => true,
    }
}
