//! Formats of names, keys and values (`k8s.io/apimachinery/pkg/util/validation` and `pkg/api/validate`).

/// Longest DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;
/// Longest DNS label, name part of a label key, and label value.
const LABEL_MAX: usize = 63;

fn is_label_of_any_length(label: &str) -> bool {
    !label.is_empty()
        && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// A lowercase RFC 1123 label.
pub(crate) fn is_dns_label(name: &str) -> bool {
    name.len() <= LABEL_MAX && is_label_of_any_length(name)
}

/// A lowercase RFC 1123 subdomain.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= SUBDOMAIN_MAX && name.split('.').all(is_label_of_any_length)
}

/// What pools are called: subdomains, separated by slashes.
pub(crate) fn is_pool_name(name: &str) -> bool {
    name.split('/').all(is_dns_subdomain)
}

/// An RFC 1123 subdomain in upper or lower case.
pub(crate) fn is_dns_subdomain_of_any_case(name: &str) -> bool {
    is_dns_subdomain(&name.to_ascii_lowercase())
}

/// The name part of a key, and a value that is not empty: letters and digits at both ends, in between `-`, `_` and `.`
/// as well.
fn is_plain(text: &str) -> bool {
    let ends = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}

/// What labels, finalizers, taints and types of conditions are called (`IsQualifiedName`).
pub(crate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_plain(name),
        None => is_plain(key),
    }
}

/// The value of a label, a taint or a toleration.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_plain(value)
}

/// A domain and a C identifier, separated by a slash.
pub(crate) fn is_fully_qualified(name: &str) -> bool {
    const IDENTIFIER_MAX: usize = 32;
    name.split_once('/').is_some_and(|(domain, id)| {
        domain.len() <= LABEL_MAX
            && is_dns_subdomain(domain)
            && id.len() <= IDENTIFIER_MAX
            && id.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// A uuid as the API server writes it: lowercase, with hyphens.
pub(crate) fn is_uuid(uid: &str) -> bool {
    uid.len() == 36
        && uid.bytes().enumerate().all(|(position, b)| match position {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
        })
}

/// The reason of a condition: letters, digits, `_`, `,` and `:`, begun by a letter and ended by none of `,` and `:`.
pub(crate) fn is_condition_reason(reason: &str) -> bool {
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':'))
        && !reason.ends_with([',', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_takes_what_it_is_for_and_nothing_else() {
        type Case = (fn(&str) -> bool, &'static [&'static str], &'static [&'static str]);
        let cases: [Case; 8] = [
            (is_dns_label, &["a", "gpu-0"], &["", "-a", "a-", "A", "a.b", "a_b"]),
            (is_dns_subdomain, &["a", "gpu.example.com"], &["", "a..b", ".a", "A.b", "a/b"]),
            (is_dns_subdomain_of_any_case, &["GPU.Example.com"], &["", "a_b"]),
            (is_label_key, &["a", "A_b.c", "example.com/Name"], &["", "a/b/c", "/b", "a/", "-a", "B/c"]),
            (is_label_value, &["", "a", "A_1"], &["a b", "-", "ä"]),
            (
                is_fully_qualified,
                &["example.com/attr_1"],
                &["attr", "example.com/", "example.com/1a", "a/b/c"],
            ),
            (
                is_uuid,
                &["8e5b1f5a-0d5e-4a0c-9a0e-0123456789ab"],
                &["", "u", "8E5B1F5A-0D5E-4A0C-9A0E-0123456789AB"],
            ),
            (is_condition_reason, &["A", "A:b_1", "a,b"], &["", "1a", "a:", "a b", "a-b"]),
        ];
        for (number, (is, good, bad)) in cases.into_iter().enumerate() {
            for text in good {
                assert!(is(text), "format {number}: {text:?}");
            }
            for text in bad {
                assert!(!is(text), "format {number}: {text:?}");
            }
        }
        assert!(is_label_value(&"x".repeat(63)) && !is_label_value(&"x".repeat(64)));
        assert!(is_dns_label(&"x".repeat(63)) && !is_dns_label(&"x".repeat(64)));
    }
}
