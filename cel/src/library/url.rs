//! URLs (`pkg/cel/library/urls.go` of the API server), parsed as Go's `net/url` does.

use super::operators::text;
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::map::{Entries, MapKey};
use crate::types::{Type, URL, list, map};
use crate::value::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    escaped_path: String,
    query: String,
    fragment: String,
}

/// What a text is a part of; which characters may stand there differs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Path,
    Host,
    Zone,
    User,
    Query,
}

impl Place {
    fn allows(self, byte: u8) -> bool {
        match byte {
            _ if byte.is_ascii_alphanumeric() => true,
            b'-' | b'_' | b'.' | b'~' => true,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'['
            | b']' | b'<' | b'>' | b'"'
                if matches!(self, Self::Host | Self::Zone) =>
            {
                true
            }
            b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@' => self == Self::Path,
            _ => false,
        }
    }
}

impl Url {
    /// Parses an absolute URI or path, as a request line has it; then a fragment is part of what precedes it.
    fn parse_request(text: &str) -> Result<Self, String> {
        Self::parse_parts(text, true)
    }

    /// Parses with a fragment.
    fn parse(text: &str) -> Result<Self, String> {
        Self::parse_request(text)?;
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        unescape(fragment, Place::Path)?;
        Ok(Self { fragment: fragment.to_owned(), ..Self::parse_parts(text, false)? })
    }

    fn parse_parts(text: &str, request: bool) -> Result<Self, String> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() && request {
            return Err("empty url".to_owned());
        }
        if text == "*" {
            return Ok(Self { escaped_path: "*".to_owned(), ..Self::default() });
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url =
            Self { scheme: scheme.to_ascii_lowercase(), query: query.to_owned(), ..Self::default() };
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if request {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        if (!url.scheme.is_empty() || (!request && !rest.starts_with("///")))
            && let Some(after) = rest.strip_prefix("//")
        {
            let (authority, rest) = after.split_at(after.find('/').unwrap_or(after.len()));
            url.set_authority(authority)?;
            path = rest;
        }
        let decoded = unescape(path, Place::Path)?;
        let valid = path.bytes().all(|b| Place::Path.allows(b) || b"!'()*[]%".contains(&b));
        url.escaped_path = if valid { path.to_owned() } else { escape_path(&decoded) };
        Ok(url)
    }

    fn set_authority(&mut self, authority: &str) -> Result<(), String> {
        let host = match authority.rsplit_once('@') {
            None => authority,
            Some((user, host)) => {
                let valid = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
                if !user.bytes().all(valid) {
                    return Err("net/url: invalid userinfo".to_owned());
                }
                unescape(user, Place::User)?;
                self.user = Some(user.to_owned());
                host
            }
        };
        self.host = parse_host(&self.scheme, host)?;
        Ok(())
    }

    fn hostname(&self) -> &str {
        self.split_host().0
    }

    fn port(&self) -> &str {
        self.split_host().1
    }

    fn split_host(&self) -> (&str, &str) {
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.contains(']') => {
                (host, port)
            }
            _ => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    fn query_values(&self) -> BTreeMap<String, Vec<String>> {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.query.split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Ok(key), Ok(value)) = (unescape(key, Place::Query), unescape(value, Place::Query)) {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                values.entry(text(key)).or_default().push(text(value));
            }
        }
        values
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok(text.split_once(':').unwrap_or(("", text))),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => {
            let Some((literal, port)) = host.strip_prefix('[').and_then(|rest| rest.rsplit_once(']')) else {
                return Err("missing ']' in host".to_owned());
            };
            check_port(port)?;
            let address = match literal.find("%25") {
                Some(at) => {
                    let (address, zone) = literal.split_at(at);
                    unescape(zone, Place::Zone)?;
                    address
                }
                None => literal,
            };
            let bytes = unescape(address, Place::Host)?;
            let address = String::from_utf8_lossy(&bytes).into_owned();
            match address.parse::<IpAddr>() {
                Ok(IpAddr::V6(_)) => Ok(host.replace("%25", "%")),
                _ => Err("invalid IP-literal".to_owned()),
            }
        }
        Some(_) => Err("invalid IP-literal".to_owned()),
        None => {
            if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
                let strict = matches!(scheme, "http" | "https");
                check_port(host.get(if strict { first } else { last }..).unwrap_or_default())?;
            }
            let bytes = unescape(host, Place::Host)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

fn check_port(text: &str) -> Result<(), String> {
    let valid = text.is_empty()
        || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if valid { Ok(()) } else { Err(format!("invalid port {text:?} after host")) }
}

/// Decodes `%xx`, and in queries `+`.
fn unescape(text: &str, place: Place) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        index += 1;
        match byte {
            b'%' => {
                let code = text
                    .get(index..index + 2)
                    .filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|code| u8::from_str_radix(code, 16).ok())
                    .ok_or_else(|| {
                        format!("invalid URL escape {:?}", text.get(index - 1..).unwrap_or_default())
                    })?;
                if place == Place::Host && code < 0x80 && code != b'%' {
                    return Err(format!("invalid URL escape in host: %{code:02x}"));
                }
                if place == Place::Zone && code != b'%' && code != b' ' && !Place::Host.allows(code) {
                    return Err(format!("invalid URL escape in zone: %{code:02x}"));
                }
                decoded.push(code);
                index += 2;
            }
            b'+' if place == Place::Query => decoded.push(b' '),
            _ if matches!(place, Place::Host | Place::Zone) && byte < 0x80 && !place.allows(byte) => {
                return Err(format!("invalid character {:?} in host name", char::from(byte)));
            }
            _ => decoded.push(byte),
        }
    }
    Ok(decoded)
}

fn escape_path(path: &[u8]) -> String {
    let mut escaped = String::with_capacity(path.len());
    for &byte in path {
        if Place::Path.allows(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format_byte(byte));
        }
    }
    escaped
}

fn format_byte(byte: u8) -> String {
    format!("%{byte:02X}")
}

/// Whether Go's `url.ParseRequestURI` accepts the text, which is also the format `uri`.
pub(super) fn is_request_uri(text: &str) -> Result<(), String> {
    Url::parse_request(text).map(|_| ())
}

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, String};
    functions.add("url", url).all_cost(CostRule::First).global([String], URL);
    functions.add("isURL", is_url).global([String], Bool);
    for name in ["getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"] {
        functions.add(name, part).member([URL], String);
    }
    functions.add("getQuery", query).member([URL], map(String, list(String)));
}

fn url<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(value)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_bytes(text(value).len())?;
    let url = Url::parse(text(value)).map_err(|error| {
        EvalError::text(format!("URL parse error during conversion from string: {error}"))
    })?;
    Ok(Value::Url(Arc::new(url)))
}

fn is_url<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(value)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_bytes(text(value).len())?;
    Ok(Value::Bool(is_request_uri(text(value)).is_ok()))
}

fn part<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Url(url)] = call.args else { return Err(call.no_such_overload()) };
    Ok(Value::text(match call.function {
        "getScheme" => url.scheme.as_str(),
        "getHost" => url.host.as_str(),
        "getHostname" => url.hostname(),
        "getPort" => url.port(),
        _ => url.escaped_path.as_str(),
    }))
}

fn query<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Url(url)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_bytes(url.query.len())?;
    let mut entries = Entries::default();
    for (key, values) in url.query_values() {
        entries.insert(MapKey::String(key.into()), Value::texts(values));
    }
    Ok(Value::Map(Map::Entries(Arc::new(entries))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_apart_as_in_go() {
        let url = Url::parse("https://user:pw@[2001:db8::1]:80/a%2fb/é?q=1&q=2#f").unwrap();
        assert_eq!((url.scheme.as_str(), url.host.as_str()), ("https", "[2001:db8::1]:80"));
        assert_eq!((url.hostname(), url.port()), ("2001:db8::1", "80"));
        assert_eq!(url.escaped_path, "/a/b/%C3%A9");
        assert_eq!(url.query_values()["q"], ["1", "2"]);
        assert_eq!(Url::parse("mailto:a@b.c").unwrap().scheme, "mailto");
    }

    #[test]
    fn what_is_no_request_uri_is_refused() {
        for text in [
            "",
            "relative/x",
            "acme.dev/x",
            "://x",
            "https://acme.dev:port/",
            "https://a:b:c/",
            "https://acme.dev/%zz",
            "http://a b/",
        ] {
            assert!(Url::parse_request(text).is_err(), "{text}");
        }
    }
}
