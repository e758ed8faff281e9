//! Regular expressions in the syntax of Go (RE2), which is not quite that of the `regex` crate.
//!
//! A pattern is read as Go's `regexp/syntax` reads it and written down again for the `regex` crate, with all that
//! differs made explicit: `\d`, `\w`, `\s` and `\b` know only ASCII, `\Q…\E` and octal escapes exist, classes have no set
//! operations, and a brace that is no repetition is a brace. What Go refuses is refused.

use regex::bytes::{Regex, RegexBuilder};
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// The most repetitions, also of nested ones together.
const MAX_REPEAT: u32 = 1000;
/// The deepest nesting of groups.
const MAX_GROUPS: u32 = 200;
/// The largest compiled size of a pattern in bytes.
const SIZE_LIMIT: usize = 4 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// How much slower than the simplest one it may be at worst.
    weight: usize,
}

impl Pattern {
    /// Compiles a pattern in Go's syntax.
    pub(crate) fn new(source: &str) -> Result<Self, String> {
        Self::with_limit(source, SIZE_LIMIT)
    }

    /// Compiles a pattern that may not be larger than `limit` bytes.
    pub(crate) fn with_limit(source: &str, limit: usize) -> Result<Self, String> {
        let (translated, repetitions) = Translator::new(source).translate()?;
        let regex = RegexBuilder::new(&translated)
            .size_limit(limit)
            .dfa_size_limit(limit)
            .nest_limit(4 * MAX_GROUPS)
            .build()
            .map_err(|error| format!("error parsing regexp: {error}"))?;
        let repetitions = usize::try_from(repetitions).unwrap_or(usize::MAX);
        Ok(Self { regex, weight: 1 + source.len().saturating_mul(repetitions) / 64 })
    }

    /// Steps that a search in the text may take.
    pub(crate) fn steps(&self, text: &str) -> u64 {
        crate::value::len(text.len().saturating_mul(self.weight) / 16)
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    /// The first `limit` matches.
    pub(crate) fn find_all(&self, text: &str, limit: usize) -> Vec<String> {
        self.regex
            .find_iter(text.as_bytes())
            .filter(|found| text.is_char_boundary(found.start()))
            .take(limit)
            .map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned())
            .collect()
    }
}

const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = "\\t\\n\\x0C\\r ";

/// Names of classes in brackets.
const POSIX_NAMES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

struct Translator<'s> {
    chars: Peekable<Chars<'s>>,
    out: String,
    groups: u32,
}

/// What repetition operators apply to: the most repetitions in what precedes, or nothing.
type Atom = Option<u32>;

fn refuse<T>(what: &str) -> Result<T, String> {
    Err(format!("error parsing regexp: {what}"))
}

impl<'s> Translator<'s> {
    fn new(source: &'s str) -> Self {
        Self { chars: source.chars().peekable(), out: String::new(), groups: 0 }
    }

    fn translate(mut self) -> Result<(String, u32), String> {
        let repetitions = self.alternation()?;
        match self.chars.next() {
            None => Ok((self.out, repetitions)),
            Some(_) => refuse("unexpected )"),
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        let mut ahead = self.chars.clone();
        if text.chars().all(|c| ahead.next() == Some(c)) {
            self.chars = ahead;
            return true;
        }
        false
    }

    fn literal(&mut self, c: char) {
        // Writing to a String does not fail.
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            let _ = write!(self.out, "\\x{{{:X}}}", u32::from(c));
        }
    }

    /// Everything up to a closing parenthesis or the end. Returns the most repetitions within.
    fn alternation(&mut self) -> Result<u32, String> {
        let mut most = 1;
        let mut atom: Atom = None;
        let mut repeated = false;
        while let Some(&c) = self.chars.peek() {
            let mut repeats = false;
            match c {
                ')' => break,
                '|' => {
                    self.chars.next();
                    self.out.push('|');
                    atom = None;
                }
                '*' | '+' | '?' => {
                    self.chars.next();
                    if atom.is_none() {
                        return refuse(&format!("missing argument to repetition operator: `{c}`"));
                    }
                    if repeated {
                        return refuse("invalid nested repetition operator");
                    }
                    self.out.push(c);
                    self.lazy();
                    repeats = true;
                }
                '{' => {
                    if let Some(times) = self.repetition() {
                        if repeated {
                            return refuse("invalid nested repetition operator");
                        }
                        let together = self.repeat(atom, times)?;
                        most = most.max(together);
                        atom = Some(together);
                        repeats = true;
                    } else {
                        self.chars.next();
                        self.literal('{');
                        atom = Some(1);
                    }
                }
                _ => {
                    if let Some(inner) = self.atom()? {
                        most = most.max(inner);
                        atom = Some(inner);
                    } else {
                        // Flags such as (?i) are no argument for a repetition.
                        atom = None;
                    }
                }
            }
            repeated = repeats;
        }
        Ok(most)
    }

    /// Writes a repetition in braces, and returns the most repetitions together with those within.
    fn repeat(&mut self, atom: Atom, (least, greatest): (u32, Option<u32>)) -> Result<u32, String> {
        let Some(inner) = atom else { return refuse("missing argument to repetition operator") };
        let times = greatest.unwrap_or(least);
        let together = inner.saturating_mul(times.max(1));
        if times < least || least.max(times) > MAX_REPEAT || together > MAX_REPEAT {
            return refuse("invalid repeat count");
        }
        let _ = match greatest {
            Some(greatest) => write!(self.out, "{{{least},{greatest}}}"),
            None => write!(self.out, "{{{least},}}"),
        };
        self.lazy();
        Ok(together)
    }

    fn lazy(&mut self) {
        if self.eat("?") {
            self.out.push('?');
        }
    }

    /// `{n}`, `{n,}` or `{n,m}`; anything else in braces is text. `None` for the second without an upper limit.
    fn repetition(&mut self) -> Option<(u32, Option<u32>)> {
        let mut ahead = self.chars.clone();
        ahead.next();
        let least = number(&mut ahead)?;
        let greatest = match ahead.next()? {
            '}' => Some(least),
            ',' if ahead.peek() == Some(&'}') => {
                ahead.next();
                None
            }
            ',' => {
                let greatest = number(&mut ahead)?;
                if ahead.next()? != '}' {
                    return None;
                }
                Some(greatest)
            }
            _ => return None,
        };
        self.chars = ahead;
        Some((least, greatest))
    }

    /// One thing that can be repeated.
    fn atom(&mut self) -> Result<Atom, String> {
        let Some(c) = self.chars.next() else { return Ok(None) };
        match c {
            '(' => self.group(),
            '[' => {
                self.class()?;
                Ok(Some(1))
            }
            '.' | '^' | '$' => {
                self.out.push(c);
                Ok(Some(1))
            }
            '\\' => self.escape(),
            c => {
                self.literal(c);
                Ok(Some(1))
            }
        }
    }

    fn group(&mut self) -> Result<Atom, String> {
        self.groups += 1;
        if self.groups > MAX_GROUPS {
            return refuse("expression nests too deeply");
        }
        self.out.push('(');
        if self.eat("?") {
            if self.eat("P<") || (self.chars.peek() == Some(&'<') && self.eat("<")) {
                let mut name = String::new();
                loop {
                    match self.chars.next() {
                        Some('>') if !name.is_empty() => break,
                        Some(c) if c.is_ascii_alphanumeric() || c == '_' => name.push(c),
                        _ => return refuse("invalid named capture"),
                    }
                }
                let _ = write!(self.out, "?P<{name}>");
            } else {
                self.out.push('?');
                if self.flags()? {
                    self.groups -= 1;
                    return Ok(None);
                }
            }
        }
        let most = self.alternation()?;
        if self.chars.next() != Some(')') {
            return refuse("missing closing )");
        }
        self.out.push(')');
        self.groups -= 1;
        Ok(Some(most))
    }

    /// The flags of a group, and whether they end it.
    fn flags(&mut self) -> Result<bool, String> {
        let (mut negative, mut seen) = (false, false);
        loop {
            let c = self.chars.next();
            match c {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    seen = true;
                    self.out.push(flag);
                }
                Some('-') if !negative => {
                    negative = true;
                    seen = false;
                    self.out.push('-');
                }
                Some(end @ (':' | ')')) if !negative || seen => {
                    self.out.push(end);
                    return Ok(end == ')');
                }
                _ => return refuse("invalid or unsupported Perl syntax"),
            }
        }
    }

    /// What follows a backslash outside of a class.
    fn escape(&mut self) -> Result<Atom, String> {
        match self.chars.next() {
            Some('A') => self.out.push_str("\\A"),
            Some('z') => self.out.push_str("\\z"),
            Some('b') => self.out.push_str("(?-u:\\b)"),
            Some('B') => self.out.push_str("(?-u:\\B)"),
            Some('Q') => {
                let mut any = false;
                while !self.eat("\\E") {
                    let Some(c) = self.chars.next() else { break };
                    self.literal(c);
                    any = true;
                }
                return Ok(any.then_some(1));
            }
            Some(c @ ('d' | 's' | 'w')) => {
                let _ = write!(self.out, "[{}]", perl_class(c));
            }
            Some(c @ ('D' | 'S' | 'W')) => {
                let _ = write!(self.out, "[^{}]", perl_class(c));
            }
            Some(c @ ('p' | 'P')) => self.unicode_class(c)?,
            Some(c) => {
                let c = self.escaped(c)?;
                self.literal(c);
            }
            None => return refuse("trailing backslash at end of expression"),
        }
        Ok(Some(1))
    }

    /// `\pN`, `\p{Greek}`, `\p{^Greek}`
    fn unicode_class(&mut self, kind: char) -> Result<(), String> {
        let mut name = String::new();
        match self.chars.next() {
            Some('{') => loop {
                match self.chars.next() {
                    Some('}') => break,
                    Some(c) if c.is_ascii_alphanumeric() || c == '_' || (c == '^' && name.is_empty()) => {
                        name.push(c);
                    }
                    _ => return refuse("invalid character class range"),
                }
            },
            Some(c) if c.is_ascii_alphabetic() => name.push(c),
            _ => return refuse("invalid character class range"),
        }
        let (negated, name) = match name.strip_prefix('^') {
            Some(name) => (true, name),
            None => (false, name.as_str()),
        };
        let kind = if (kind == 'P') == negated { 'p' } else { 'P' };
        let _ = write!(self.out, "\\{kind}{{{name}}}");
        Ok(())
    }

    /// The character that an escape stands for.
    fn escaped(&mut self, c: char) -> Result<char, String> {
        Ok(match c {
            'a' => '\x07',
            'f' => '\x0C',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0B',
            '0' => self.octal(0),
            '1'..='7' if self.chars.peek().is_some_and(|c| ('0'..='7').contains(c)) => {
                self.octal(c.to_digit(8).unwrap_or(0))
            }
            'x' => return self.hexadecimal(),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return refuse(&format!("invalid escape sequence: `\\{c}`")),
        })
    }

    /// Up to two more octal digits.
    fn octal(&mut self, first: u32) -> char {
        let mut value = first;
        for _ in 0..2 {
            let Some(digit) = self.chars.peek().and_then(|c| c.to_digit(8)) else { break };
            self.chars.next();
            value = value * 8 + digit;
        }
        char::from_u32(value).unwrap_or_default()
    }

    fn hexadecimal(&mut self) -> Result<char, String> {
        let mut digits = String::new();
        if self.eat("{") {
            loop {
                match self.chars.next() {
                    Some('}') => break,
                    Some(c) if c.is_ascii_hexdigit() && digits.len() < 8 => digits.push(c),
                    _ => return refuse("invalid escape sequence"),
                }
            }
        } else {
            for _ in 0..2 {
                digits.extend(self.chars.next());
            }
        }
        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
        code.map_or_else(|| refuse("invalid escape sequence"), Ok)
    }

    /// A class in brackets.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            match self.chars.peek().copied() {
                None => return refuse("missing closing ]"),
                Some(']') if !first => {
                    self.chars.next();
                    self.out.push(']');
                    return Ok(());
                }
                Some('[') if self.posix_class()? => {}
                _ => {
                    if let Some(from) = self.class_char()? {
                        self.class_range(from)?;
                    }
                }
            }
            first = false;
        }
    }

    fn class_range(&mut self, from: char) -> Result<(), String> {
        let mut ahead = self.chars.clone();
        let range = ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']');
        let to = if range {
            self.chars.next();
            match self.class_char()? {
                Some(to) if to >= from => to,
                _ => return refuse("invalid character class range"),
            }
        } else {
            from
        };
        let _ = write!(self.out, "\\x{{{:X}}}-\\x{{{:X}}}", u32::from(from), u32::from(to));
        Ok(())
    }

    /// One character of a class; `None` if it was a class itself, which is written already.
    fn class_char(&mut self) -> Result<Option<char>, String> {
        match self.chars.next() {
            None => refuse("missing closing ]"),
            Some('\\') => match self.chars.next() {
                None => refuse("trailing backslash at end of expression"),
                Some(c @ ('d' | 's' | 'w')) => {
                    self.out.push_str(perl_class(c));
                    Ok(None)
                }
                Some(c @ ('D' | 'S' | 'W')) => {
                    let _ = write!(self.out, "[^{}]", perl_class(c));
                    Ok(None)
                }
                Some(c @ ('p' | 'P')) => self.unicode_class(c).map(|()| None),
                Some(c) => self.escaped(c).map(Some),
            },
            Some(c) => Ok(Some(c)),
        }
    }

    /// `[:alpha:]` within a class.
    fn posix_class(&mut self) -> Result<bool, String> {
        let mut ahead = self.chars.clone();
        ahead.next();
        if ahead.next() != Some(':') {
            return Ok(false);
        }
        let rest: String = ahead.collect();
        let Some((name, _)) = rest.split_once(":]") else { return Ok(false) };
        if !POSIX_NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return refuse("invalid character class range");
        }
        let name = format!("[:{name}:]");
        self.eat(&name);
        self.out.push_str(&name);
        Ok(true)
    }
}

fn perl_class(c: char) -> &'static str {
    match c.to_ascii_lowercase() {
        'd' => DIGITS,
        'w' => WORD,
        _ => SPACE,
    }
}

/// A number without leading zeros.
fn number(chars: &mut Peekable<Chars<'_>>) -> Option<u32> {
    let mut digits = String::new();
    while let Some(c) = chars.peek().filter(|c| c.is_ascii_digit()) {
        digits.push(*c);
        chars.next();
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    if digits.len() > 9 {
        return Some(u32::MAX);
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).unwrap().is_match(text)
    }

    #[test]
    fn perl_classes_know_only_ascii() {
        assert!(matches(r"^\d\w\s$", "3_\t"));
        assert!(!matches(r"\d", "\u{661}"));
        assert!(!matches(r"\w", "\u{e9}"));
        assert!(matches(r"^[\D]$", "\u{661}"));
        assert!(matches(r"^[^\W]$", "x"));
        assert!(!matches(r"\s", "\u{b}"));
    }

    #[test]
    fn what_only_go_knows_is_translated() {
        assert!(matches(r"^\Qa.b\E$", "a.b"));
        assert!(!matches(r"^\Qa.b\E$", "axb"));
        assert!(matches(r"^\101\x42\x{43}$", "ABC"));
        assert!(matches("^a{,2}$", "a{,2}"));
        assert!(matches("^{$", "{"));
        assert!(matches("^[a&&b]$", "&"));
        assert!(matches(r"^\<$", "<"));
        assert!(matches("^[]a]$", "]"));
        assert!(matches("^[[:^alpha:]-]$", "-"));
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for pattern in [
            "a**",
            "a*+",
            "a{2}{3}",
            "*",
            "(",
            ")",
            "[",
            "[b-a]",
            "[[:nope:]]",
            r"\u0041",
            r"\Z",
            r"\C",
            r"\1",
            "(?x)a",
            "(?a)b",
            "(?=a)",
            "a{1001}",
            "(a{100}){100}",
            r"\x{110000}",
            "\\",
            "(?P<>a)",
            "a|*",
            "(?i",
        ] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn all_matches_are_found_without_overlap() {
        let found = |pattern, text, limit| Pattern::new(pattern).unwrap().find_all(text, limit);
        assert_eq!(found("[0-9]+", "fan-12 temp-345", 9), ["12", "345"]);
        assert_eq!(found("[0-9]+", "fan-12 temp-345", 1), ["12"]);
        assert_eq!(found("", "ab", 9), ["", "", ""]);
        assert_eq!(found("é?", "éa", 9), ["é", ""], "nothing right behind a match is none");
    }
}
