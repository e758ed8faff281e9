//! Forms of names, and what is wrong with one that does not have them.

/// Longest driver name, and domain of an attribute or capacity.
const MAX_DOMAIN: usize = 63;
/// Longest name of an attribute or capacity behind its domain.
const MAX_ID: usize = 32;

/// Lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit in each part.
pub(super) fn subdomain(text: &str, max: usize) -> Result<(), String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if text.len() > max {
        return Err(format!("{text:?} is longer than {max} bytes"));
    }
    if text.split('.').all(is_label) {
        Ok(())
    } else {
        Err(format!("{text:?} is no DNS subdomain (lower-case letters, digits, '-' and '.')"))
    }
}

/// A driver's name.
pub(super) fn driver(text: &str) -> Result<(), String> {
    subdomain(text, MAX_DOMAIN)
}

/// A DNS label: a subdomain without dots, of at most 63 bytes.
pub(super) fn label(text: &str) -> Result<(), String> {
    if text.is_empty() {
        Err("is empty".to_owned())
    } else if text.len() <= MAX_DOMAIN && is_label(text) {
        Ok(())
    } else {
        Err(format!("{text:?} is no DNS label (at most 63 lower-case letters, digits and '-')"))
    }
}

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// A pool's name: subdomains separated by slashes.
pub(super) fn pool(text: &str) -> Result<(), String> {
    if text.len() > 253 {
        return Err(format!("{text:?} is longer than 253 bytes"));
    }
    text.split('/').try_for_each(|part| subdomain(part, 253))
}

/// The name of an attribute or capacity, with or without a domain (`validateQualifiedName`).
pub(super) fn qualified(text: &str) -> Result<(), String> {
    let id = match text.split_once('/') {
        Some((domain, id)) => {
            driver(domain).map_err(|fault| format!("the domain {fault}"))?;
            id
        }
        None => text,
    };
    if id.is_empty() {
        return Err("the name is empty".to_owned());
    }
    if id.len() > MAX_ID {
        return Err(format!("{id:?} is longer than {MAX_ID} bytes"));
    }
    let is_inner = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    if id.bytes().all(is_inner) && !id.starts_with(|c: char| c.is_ascii_digit()) {
        Ok(())
    } else {
        Err(format!("{id:?} is no C identifier (letters, digits and '_', no digit first)"))
    }
}

/// The name of an attribute with its domain.
pub(super) fn fully_qualified(text: &str) -> Result<(), String> {
    if text.contains('/') { qualified(text) } else { Err(format!("{text:?} has no domain")) }
}

/// What the API server would take instead of a name that it refuses.
pub(super) fn as_identifier(text: &str) -> String {
    let (domain, id) = text.rsplit_once('/').map_or(("", text), |(domain, id)| (domain, id));
    let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if domain.is_empty() { id } else { format!("{domain}/{id}") }
}
