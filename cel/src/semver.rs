//! Semantic versions as Kubernetes reads them: strict semver 2.0, the rules of `github.com/blang/semver/v4`.

use std::cmp::Ordering;
use std::fmt;

/// A semantic version. Equality and order ignore build metadata, as precedence does.
#[derive(Clone, Debug)]
pub struct Version {
    /// The number before the first dot.
    pub major: u64,
    /// The number between the dots.
    pub minor: u64,
    /// The number after the second dot.
    pub patch: u64,
    pre: Box<[Identifier]>,
    build: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    /// Numbers come before words.
    Number(u64),
    Word(Box<str>),
}

impl Version {
    /// Parses `major.minor.patch[-pre][+build]`.
    ///
    /// # Errors
    ///
    /// The message of Kubernetes that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let major = number("major", major)?;
        let minor = number("minor", minor)?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (*rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let patch = number("patch", patch)?;
        let pre = match pre {
            Some(pre) => pre.split('.').map(pre_release).collect::<Result<_, _>>()?,
            None => Box::default(),
        };
        if let Some(build) = build {
            for part in build.split('.') {
                if part.is_empty() {
                    return Err("Build meta data is empty".to_owned());
                }
                if !is_identifier(part) {
                    return Err(format!("Invalid character(s) found in build meta data {part:?}"));
                }
            }
        }
        Ok(Self { major, minor, patch, pre, build: build.unwrap_or_default().into() })
    }

    /// Parses after normalising: strips a leading `v`, drops leading zeros, and adds missing minor and patch numbers.
    ///
    /// # Errors
    ///
    /// As [`Version::parse`].
    pub fn parse_normalised(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text
            .splitn(3, '.')
            .map(|part| {
                if part.len() < 2 {
                    return part.to_owned();
                }
                let stripped = part.trim_start_matches('0');
                if stripped.starts_with(|c: char| c.is_ascii_digit()) {
                    stripped.to_owned()
                } else {
                    format!("0{stripped}")
                }
            })
            .collect();
        if parts.len() < 3 && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return Err("Short version cannot contain PreRelease/Build meta data".to_owned());
        }
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

fn number(which: &str, text: &str) -> Result<u64, String> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {which} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{which} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("{which} number {text:?} is not a 64-bit number"))
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn pre_release(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return text
            .parse()
            .map(Identifier::Number)
            .map_err(|_| format!("Prerelease {text:?} is not a 64-bit number"));
    }
    if is_identifier(text) {
        return Ok(Identifier::Word(text.into()));
    }
    Err(format!("Invalid character(s) found in prerelease {text:?}"))
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch)).then_with(
            || match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre.cmp(&other.pre),
            },
        )
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (index, identifier) in self.pre.iter().enumerate() {
            f.write_str(if index == 0 { "-" } else { "." })?;
            match identifier {
                Identifier::Number(number) => write!(f, "{number}")?,
                Identifier::Word(word) => f.write_str(word)?,
            }
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn precedence_is_that_of_semver() {
        let ordered = [
            "0.0.0-alpha",
            "0.0.0",
            "1.0.0-1",
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-A",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-rc10",
            "1.0.0-rc2",
            "1.0.0",
            "2.9.99",
            "2.10.0",
            "18446744073709551615.0.0",
        ];
        for pair in ordered.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("1.0.0+a"), version("1.0.0+b"));
    }

    #[test]
    fn text_is_kept_and_nonsense_refused() {
        for text in ["1.2.3", "1.2.3-rc.1", "1.2.3--x.-+b.01", "0.0.0+0"] {
            assert_eq!(version(text).to_string(), text);
        }
        for text in [
            "",
            "1",
            "1.2",
            "v1.2.3",
            "1.02.3",
            "1.2.3-",
            "1.2.3+",
            "1.2.3-01",
            "1.2.3-a..b",
            "1.2.3-é",
            "1.2.-3",
        ] {
            assert!(Version::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn normalising_fills_and_strips() {
        for (text, normal) in [
            ("v1", "1.0.0"),
            ("01.002.0003", "1.2.3"),
            ("1.2.00-rc1", "1.2.0-rc1"),
            ("00.0.00", "0.0.0"),
            ("v01.2", "1.2.0"),
        ] {
            assert_eq!(Version::parse_normalised(text).unwrap().to_string(), normal, "{text}");
        }
        for text in ["", "v", "V1.2.3", "vv1", "1.2-rc1", "1..3", "1.2.3.4", "1.2.0x"] {
            assert!(Version::parse_normalised(text).is_err(), "{text}");
        }
    }
}
