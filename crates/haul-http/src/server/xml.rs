//! Parses XML request bodies into a tree, and writes elements that depend on their context only for the declaration of
//! the prefix `D`. The size of the tree is bounded by that of the request, its depth by `XML_DEPTH`.

use quick_xml::NsReader;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{NamespaceResolver, PrefixDeclaration, ResolveResult};

use super::limits;

/// The error of malformed or unsupported XML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// WebDAV's namespace.
pub(super) const DAV: &str = "DAV:";

/// A qualified name. `namespace` is empty if it has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    pub(super) namespace: String,
    pub(super) local: String,
}

impl Name {
    /// Whether this is `local` in WebDAV's namespace.
    pub(super) fn is_dav(&self, local: &str) -> bool {
        self.namespace == DAV && self.local == local
    }

    /// Writes an element of this name around `content`, which is XML.
    pub(super) fn write(&self, content: &str, out: &mut String) {
        let (tag, declared) = self.tag();
        out.extend(["<", &tag, &declared]);
        if content.is_empty() {
            out.push_str("/>");
        } else {
            out.extend([">", content, "</", &tag, ">"]);
        }
    }

    /// The prefixed name, and the declaration of its prefix. The caller declares `D` in an enclosing element.
    fn tag(&self) -> (String, String) {
        match self.namespace.as_str() {
            DAV => (format!("D:{}", self.local), String::new()),
            "" => (self.local.clone(), String::new()),
            // `xml` is always declared, and no other prefix may be bound to its namespace.
            XML => (format!("xml:{}", self.local), String::new()),
            namespace => (format!("x:{}", self.local), format!(" xmlns:x=\"{namespace}\"")),
        }
    }
}

/// An element with everything in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: Name,
    /// Names and raw values, escaped for `"` and `<`, without namespace declarations.
    attributes: Vec<(Name, String)>,
    children: Vec<Child>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Child {
    Element(Element),
    /// Raw text with its entity references.
    Text(String),
}

impl Element {
    /// The child elements.
    pub(super) fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match child {
            Child::Element(element) => Some(element),
            Child::Text(_) => None,
        })
    }

    /// The text of this element without its child elements, with its entity references.
    pub(super) fn text(&self) -> String {
        let texts = self.children.iter().filter_map(|child| match child {
            Child::Text(text) => Some(text.as_str()),
            Child::Element(_) => None,
        });
        texts.collect()
    }

    /// Writes the element so that it means the same in any context that declares only the prefix `D`.
    pub(super) fn write(&self, out: &mut String) {
        let (tag, declared) = self.name.tag();
        out.extend(["<", &tag, &declared]);
        for (at, (name, value)) in self.attributes.iter().enumerate() {
            let local = &name.local;
            let attribute = match name.namespace.as_str() {
                "" => format!(" {local}=\"{value}\""),
                XML => format!(" xml:{local}=\"{value}\""),
                namespace => format!(" xmlns:a{at}=\"{namespace}\" a{at}:{local}=\"{value}\""),
            };
            out.push_str(&attribute);
        }
        out.push('>');
        for child in &self.children {
            match child {
                Child::Element(element) => element.write(out),
                Child::Text(text) => out.push_str(text),
            }
        }
        out.extend(["</", &tag, ">"]);
    }
}

/// The namespace of the prefix `xml` (Namespaces in XML, section 3).
const XML: &str = "http://www.w3.org/XML/1998/namespace";

/// The namespace of the prefix `xmlns`.
const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// Parses a document. A document type declaration is refused, because it could define entities.
///
/// # Errors
/// [`Malformed`] also for undeclared prefixes, unknown entities, and too much depth or too long a namespace.
pub(super) fn parse(bytes: &[u8]) -> Result<Element, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
    if !text.chars().all(is_xml) {
        return Err(Malformed);
    }
    let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    loop {
        let event = reader.read_event().map_err(|_| Malformed)?;
        let closed = match event {
            Event::Start(start) => {
                if open.len() >= limits::XML_DEPTH || root.is_some() {
                    return Err(Malformed);
                }
                open.push(element(&start, reader.resolver())?);
                continue;
            }
            Event::Empty(start) if root.is_none() && open.len() < limits::XML_DEPTH => {
                element(&start, reader.resolver())?
            }
            Event::End(_) => open.pop().ok_or(Malformed)?,
            Event::Eof => return root.filter(|_| open.is_empty()).ok_or(Malformed),
            Event::Text(text) => {
                add_text(&mut open, text.into_inner().into_owned())?;
                continue;
            }
            Event::CData(data) => {
                let text = data.minimal_escape().map_err(|_| Malformed)?;
                add_text(&mut open, text.into_inner().into_owned())?;
                continue;
            }
            Event::GeneralRef(name) => {
                check_reference(&name)?;
                add_text(&mut open, format!("&{};", name.into_inner()))?;
                continue;
            }
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) => continue,
            Event::Empty(_) | Event::DocType(_) => return Err(Malformed),
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(Child::Element(closed)),
            None => root = Some(closed),
        }
    }
}

/// Checks that a reference is to a character, or to an entity that needs no declaration.
fn check_reference(name: &BytesRef<'_>) -> Result<(), Malformed> {
    let is_known = matches!(&**name, "lt" | "gt" | "amp" | "apos" | "quot");
    let is_character = matches!(name.resolve_char_ref(), Ok(Some(c)) if is_xml(c));
    if is_known || is_character { Ok(()) } else { Err(Malformed) }
}

/// Checks the references in an attribute value, which the reader does not look at. Returns the value so that it can be
/// written between double quotes.
fn attribute_value(value: &str) -> Result<String, Malformed> {
    for after in value.split('&').skip(1) {
        let (name, _) = after.split_once(';').ok_or(Malformed)?;
        check_reference(&BytesRef::new(name))?;
    }
    Ok(value.replace('"', "&quot;").replace('<', "&lt;"))
}

fn add_text(open: &mut [Element], text: String) -> Result<(), Malformed> {
    match open.last_mut() {
        Some(parent) => parent.children.push(Child::Text(text)),
        None if text.trim().is_empty() => {}
        None => return Err(Malformed),
    }
    Ok(())
}

fn element(start: &BytesStart<'_>, resolver: &NamespaceResolver) -> Result<Element, Malformed> {
    let (namespace, local) = resolver.resolve_element(start.name());
    let name = name(&namespace, local.into_inner())?;
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|_| Malformed)?;
        match attribute.key.as_namespace_binding() {
            // A prefix cannot be bound to an empty namespace (Namespaces in XML, section 2.2).
            Some(PrefixDeclaration::Named(_)) if attribute.value.is_empty() => {
                return Err(Malformed);
            }
            Some(_) => continue,
            None => {}
        }
        let (namespace, local) = resolver.resolve_attribute(attribute.key);
        let value = attribute_value(&attribute.value)?;
        attributes.push((self::name(&namespace, local.into_inner())?, value));
    }
    Ok(Element { name, attributes, children: Vec::new() })
}

fn name(namespace: &ResolveResult<'_>, local: &str) -> Result<Name, Malformed> {
    let namespace = match namespace {
        ResolveResult::Bound(namespace) if namespace.into_inner().len() > limits::NAMESPACE => {
            return Err(Malformed);
        }
        ResolveResult::Bound(namespace) => attribute_value(namespace.into_inner())?,
        ResolveResult::Unbound => String::new(),
        ResolveResult::Unknown(_) => return Err(Malformed),
    };
    // No element or attribute is in that namespace (Namespaces in XML, section 3).
    if namespace == XMLNS || !is_local_name(local) {
        return Err(Malformed);
    }
    Ok(Name { namespace, local: local.to_owned() })
}

/// Whether a text is a name without a prefix (Namespaces in XML, section 3).
fn is_local_name(text: &str) -> bool {
    let is_later = |c| matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}' | '\u{2040}');
    text.starts_with(is_name_start) && text.chars().all(|c| is_name_start(c) || is_later(c))
}

/// Whether a name without a prefix may begin with `c` (XML, section 2.3, without `:`).
const fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
        | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}'
        | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
        | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// Whether a document may contain `c` (XML, section 2.2).
const fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Writes a document in which `D` is declared by the root element, and every other prefix where it is used.
pub(super) fn document(root: &Element) -> String {
    let mut content = String::new();
    root.write(&mut content);
    // The declaration goes directly after the name of the root element.
    let end = content.find(['>', ' ']).unwrap_or(content.len());
    content.insert_str(end, " xmlns:D=\"DAV:\"");
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> Result<String, Malformed> {
        let mut out = String::new();
        parse(text.as_bytes())?.write(&mut out);
        Ok(out)
    }

    #[test]
    fn a_written_element_does_not_depend_on_its_context() {
        let text = r#"<?xml version="1.0"?><a:p xmlns:a="DAV:" xmlns="urn:x" xml:lang="de">
<q r='"' a:s="1">&lt;t&#65;<![CDATA[<u>]]></q><b xmlns=""/></a:p>"#;
        let expected = "<D:p xml:lang=\"de\">\n<x:q xmlns:x=\"urn:x\" r=\"&quot;\" \
                        xmlns:a1=\"DAV:\" a1:s=\"1\">&lt;t&#65;&lt;u></x:q><b></b></D:p>";
        let written = rewritten(text).unwrap();
        assert_eq!(written.replace("&gt;", ">"), expected);
        // Regression: another prefix was declared for the namespace of `xml`, which is malformed.
        assert_eq!(rewritten("<xml:a/>").unwrap(), "<xml:a></xml:a>");
    }

    #[test]
    fn malformed_and_harmful_xml_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(20_000), "</a>".repeat(20_000));
        let most = limits::XML_DEPTH;
        let deep_and_empty = format!("{}<a/>{}", "<a>".repeat(most), "</a>".repeat(most));
        let long = format!("<a xmlns=\"urn:{}\"/>", "x".repeat(limits::NAMESPACE));
        for text in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a xmlns:b=\"\"/>",
            "<b:a/>",
            "<a b:c=\"\"/>",
            "<a b=\"1\" b=\"2\"/>",
            "<xmlns:a/>",
            "<a \0b=\"\"/>",
            "<a>\u{1}</a>",
            "<a>&#1;</a>",
            "<1a/>",
            "<a\u{d7}/>",
            "<a>&x;</a>",
            "<a b=\"&x;\"/>",
            "<a b=\"&\"/>",
            "<a b=\"&#1;\"/>",
            "<a xmlns=\"a&b\"/>",
            "<b:a xmlns:b=\"&x;\"/>",
            &deep_and_empty,
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            &deep,
            &long,
        ] {
            assert_eq!(rewritten(text), Err(Malformed), "{}", &text[..text.len().min(60)]);
        }
    }
}
