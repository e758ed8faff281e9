//! The name that a generated claim starts with.

/// Longest generated name without the five characters that the API server appends would be 58 bytes for a DNS
/// label; the in-tree controller uses one less.
const MAX_BASE: usize = 57;

/// `generateName` for the claim of `entry` of the Pod or PodGroup `owner`.
///
/// Equals the in-tree name (`<owner>-<entry>-`, both parts cut in proportion when that is longer than 57 bytes,
/// then without the last hyphen) wherever the in-tree name is valid. Two cuts are not: a part that ends in a dot
/// would put a hyphen behind it, and an owner of which nothing is left would make the name start with one.
pub fn generate_name(owner: &str, entry: &str) -> String {
    let full = owner.len().saturating_add(entry.len()).saturating_add(2);
    if full <= MAX_BASE {
        return format!("{owner}-{entry}-");
    }
    let cut = |part: &str| part.len().saturating_mul(MAX_BASE).checked_div(full).unwrap_or(0);
    let owner = prefix(owner, cut(owner).max(1)).trim_end_matches('.');
    format!("{owner}-{}", prefix(entry, cut(entry)))
}

/// The first `bytes` bytes, fewer if that would cut a character: names are ASCII once validated.
fn prefix(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::generate_name;
    use proptest::prelude::*;

    #[test]
    fn short_names_are_joined_with_hyphens() {
        assert_eq!(generate_name("pod", "gpu"), "pod-gpu-");
        let owner = "p".repeat(50);
        assert_eq!(generate_name(&owner, "gpu12"), format!("{owner}-gpu12-"), "57 bytes are not cut");
    }

    #[test]
    fn long_names_are_cut_in_proportion_as_in_tree() {
        assert_eq!(
            generate_name(&"p".repeat(63), &"c".repeat(63)),
            format!("{}-{}", "p".repeat(28), "c".repeat(28))
        );
        assert_eq!(generate_name(&"p".repeat(253), "x"), format!("{}-", "p".repeat(56)));
    }

    #[test]
    fn a_cut_behind_a_dot_loses_the_dot() {
        let owner = format!("{}.{}", "a".repeat(40), "b".repeat(19));
        let name = generate_name(&owner, &"c".repeat(20));
        assert_eq!(name, format!("{}-{}", "a".repeat(40), "c".repeat(13)));
    }

    #[test]
    fn a_short_owner_keeps_its_first_character_beside_a_long_entry() {
        assert_eq!(generate_name("a", &"e".repeat(63)), format!("a-{}", "e".repeat(54)));
    }

    fn is_subdomain(name: &str) -> bool {
        let label = |l: &str| {
            !l.is_empty()
                && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        name.len() <= 253 && name.split('.').all(label)
    }

    proptest! {
        #[test]
        fn every_valid_owner_and_entry_give_a_valid_name(
            owner in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?){0,6}",
            entry in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        ) {
            let name = format!("{}{}", generate_name(&owner, &entry), "x7k2j");
            prop_assert!(is_subdomain(&name), "{name}");
            prop_assert!(name.len() <= 63, "{name}");
        }

        #[test]
        fn any_text_gives_some_name(owner in ".{0,300}", entry in ".{0,300}") {
            prop_assert!(generate_name(&owner, &entry).len() <= 61);
        }
    }
}
