//! Follows the elements of a multistatus and collects the content of each `response`.
//!
//! The open elements are a stack of [`Element`]s: the meaning of an element follows from its namespace and
//! name and from its parent, so a `href` within a property (as in `current-user-principal`) is not the
//! `href` of the resource.

use quick_xml::escape::{resolve_xml_entity, unescape_with};
use quick_xml::events::BytesStart;
use quick_xml::name::{NamespaceResolver, QName, ResolveResult};

use super::limits::{Limits, MultistatusError};
use super::resource::Resource;
use super::tokens::Token;

use crate::parse::dates;

/// The meaning of an open element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Multistatus,
    Response,
    Href,
    Status,
    Propstat,
    PropstatStatus,
    Prop,
    Property(Property),
    Other,
}

/// A property that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    ResourceType,
    Collection,
    Length,
    Modified,
    Etag,
    QuotaUsed,
    QuotaAvailable,
    ContentType,
    Permissions,
    Checksums,
    Checksum,
}

/// The namespace of WebDAV (RFC 4918, section 21.1), with its colon.
const DAV: &str = "DAV:";
/// The namespace of ownCloud, Nextcloud, OpenCloud and oCIS.
const OWNCLOUD: &str = "http://owncloud.org/ns";

#[derive(Debug)]
pub(super) struct Tree {
    limits: Limits,
    namespaces: NamespaceResolver,
    /// The open elements.
    open: Vec<Element>,
    /// Their names as written, concatenated, and where each begins.
    names: String,
    name_starts: Vec<usize>,
    /// Text of the open element, if its text matters.
    text: String,
    /// Bytes since the open `response` began.
    bytes: usize,
    /// Whether the root has ended.
    complete: bool,
    response: Response,
}

/// The content of the open `response` so far.
#[derive(Debug, Default)]
struct Response {
    hrefs: Vec<String>,
    status: Option<u16>,
    /// Properties with status 200.
    found: Resource,
    /// Properties of the open `propstat`, whose status may follow them.
    candidate: Resource,
    candidate_status: Option<u16>,
}

impl Tree {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            namespaces: NamespaceResolver::default(),
            open: Vec::new(),
            names: String::new(),
            name_starts: Vec::new(),
            text: String::new(),
            bytes: 0,
            complete: false,
            response: Response::default(),
        }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes a token; appends the resources that it completes.
    pub(super) fn take(
        &mut self,
        token: Token<'_>,
        resources: &mut Vec<Resource>,
    ) -> Result<(), MultistatusError> {
        self.count(token)?;
        match token {
            Token::Text(text) => self.text(text, false),
            Token::Cdata(text) => self.text(text, true),
            Token::Start(content) => self.start(content),
            Token::Empty(content) => {
                self.start(content)?;
                self.end(resources)
            }
            Token::End(name) => {
                let start = self.name_starts.last();
                if start.is_none_or(|start| self.names[*start..] != *name) {
                    return Err(MultistatusError::Malformed("an end tag without a start tag"));
                }
                self.end(resources)
            }
            Token::Skipped(_) => Ok(()),
        }
    }

    fn count(&mut self, token: Token<'_>) -> Result<(), MultistatusError> {
        if self.open.len() < 2 {
            self.bytes = 0;
        }
        self.bytes += match token {
            Token::Text(text) | Token::Cdata(text) => text.len(),
            Token::Start(text) | Token::Empty(text) | Token::End(text) => text.len() + 2,
            Token::Skipped(bytes) => bytes,
        };
        if self.bytes > self.limits.element_bytes {
            return Err(MultistatusError::TooLarge("bytes"));
        }
        Ok(())
    }

    fn text(&mut self, text: &str, is_cdata: bool) -> Result<(), MultistatusError> {
        let Some(element) = self.open.last() else {
            // Outside the root only white space is allowed.
            let blank = !is_cdata && text.bytes().all(|byte| byte.is_ascii_whitespace());
            return if blank { Ok(()) } else { Err(MultistatusError::NotMultistatus) };
        };
        if !element.has_text() {
            return Ok(());
        }
        if is_cdata {
            self.text.push_str(text);
            return Ok(());
        }
        let text = unescape_with(text, resolve_xml_entity)
            .map_err(|_| MultistatusError::Malformed("an unknown entity"))?;
        self.text.push_str(&text);
        Ok(())
    }

    fn start(&mut self, content: &str) -> Result<(), MultistatusError> {
        if self.complete {
            return Err(MultistatusError::Malformed("content after the root element"));
        }
        if self.open.len() >= self.limits.depth {
            return Err(MultistatusError::TooLarge("depth"));
        }
        let is_space = |c: char| c.is_ascii_whitespace();
        let name = content.split(is_space).next().unwrap_or_default();
        // A bare `<` in text, as in HTML, does not start an element.
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Err(MultistatusError::Malformed("an element without a name"));
        }
        let start = BytesStart::from_content(content, name.len());
        let mut attributes = start.attributes();
        for _ in 0..self.limits.attributes {
            match attributes.next() {
                None => break,
                Some(Ok(_)) => {}
                Some(Err(_)) => return Err(MultistatusError::Malformed("an attribute")),
            }
        }
        if attributes.next().is_some() {
            return Err(MultistatusError::TooLarge("attributes"));
        }
        self.namespaces
            .push(&start)
            .map_err(|_| MultistatusError::Malformed("a namespace declaration"))?;
        let element = self.element(name);
        if self.open.is_empty() && element != Element::Multistatus {
            return Err(MultistatusError::NotMultistatus);
        }
        if self.open.last() == Some(&Element::Prop) {
            self.response.found.described = true;
        }
        match element {
            Element::Response => self.response = Response::default(),
            Element::Propstat => self.response.begin_propstat(),
            Element::Property(Property::Collection) => self.response.candidate.collection = true,
            _ => {}
        }
        self.text.clear();
        self.open.push(element);
        self.name_starts.push(self.names.len());
        self.names.push_str(name);
        Ok(())
    }

    fn element(&self, name: &str) -> Element {
        let (namespace, local) = self.namespaces.resolve_element(QName(name));
        let ResolveResult::Bound(namespace) = namespace else { return Element::Other };
        let (namespace, local) = (namespace.into_inner(), local.into_inner());
        match (self.open.last(), namespace, local) {
            (None, DAV, "multistatus") => Element::Multistatus,
            (Some(Element::Multistatus), DAV, "response") => Element::Response,
            (Some(Element::Response), DAV, "href") => Element::Href,
            (Some(Element::Response), DAV, "status") => Element::Status,
            (Some(Element::Response), DAV, "propstat") => Element::Propstat,
            (Some(Element::Propstat), DAV, "status") => Element::PropstatStatus,
            (Some(Element::Propstat), DAV, "prop") => Element::Prop,
            (Some(Element::Prop | Element::Property(_)), ..) => {
                let within = self.open.last().copied();
                property(within, namespace, local).map_or(Element::Other, Element::Property)
            }
            _ => Element::Other,
        }
    }

    fn end(&mut self, resources: &mut Vec<Resource>) -> Result<(), MultistatusError> {
        self.namespaces.pop();
        let start = self.name_starts.pop().unwrap_or(0);
        self.names.truncate(start);
        let text = self.text.trim_matches(|c: char| c.is_ascii_whitespace());
        let response = &mut self.response;
        match self.open.pop() {
            Some(Element::Multistatus) => self.complete = true,
            Some(Element::Href) => response.hrefs.push(text.to_owned()),
            Some(Element::Status) => response.status = status(text),
            Some(Element::PropstatStatus) => response.candidate_status = status(text),
            Some(Element::Property(property)) => response.candidate.set(property, text),
            Some(Element::Propstat) => response.end_propstat(),
            Some(Element::Response) => std::mem::take(response).end(resources)?,
            Some(Element::Prop | Element::Other) | None => {}
        }
        self.text.clear();
        Ok(())
    }
}

impl Element {
    const fn has_text(self) -> bool {
        match self {
            Self::Href | Self::Status | Self::PropstatStatus => true,
            Self::Property(property) => !matches!(
                property,
                Property::ResourceType | Property::Collection | Property::Checksums
            ),
            _ => false,
        }
    }
}

fn property(within: Option<Element>, namespace: &str, local: &str) -> Option<Property> {
    Some(match (within?, namespace, local) {
        (Element::Prop, DAV, "resourcetype") => Property::ResourceType,
        (Element::Property(Property::ResourceType), DAV, "collection") => Property::Collection,
        (Element::Prop, DAV, "getcontentlength") => Property::Length,
        (Element::Prop, DAV, "getlastmodified") => Property::Modified,
        (Element::Prop, DAV, "getetag") => Property::Etag,
        (Element::Prop, DAV, "getcontenttype") => Property::ContentType,
        (Element::Prop, DAV, "quota-used-bytes") => Property::QuotaUsed,
        (Element::Prop, DAV, "quota-available-bytes") => Property::QuotaAvailable,
        (Element::Prop, OWNCLOUD, "permissions") => Property::Permissions,
        (Element::Prop, OWNCLOUD, "checksums") => Property::Checksums,
        (Element::Property(Property::Checksums), OWNCLOUD, "checksum") => Property::Checksum,
        _ => return None,
    })
}

impl Response {
    fn begin_propstat(&mut self) {
        self.candidate = Resource::default();
        self.candidate_status = None;
    }

    /// Only properties with status 200 have values (RFC 4918, section 9.1.2: the others are empty).
    fn end_propstat(&mut self) {
        let candidate = std::mem::take(&mut self.candidate);
        match self.candidate_status {
            Some(200) => {
                self.found.described = true;
                self.found.merge(candidate);
            }
            other => self.found.property_status = self.found.property_status.or(other),
        }
    }

    /// Adds one resource; or several, if one status is given for all of them (section 14.24). Those have
    /// no properties, so nothing is copied however many there are.
    fn end(self, resources: &mut Vec<Resource>) -> Result<(), MultistatusError> {
        let Self { mut hrefs, status, mut found, .. } = self;
        if hrefs.len() > 1 {
            let only_status = |href| Resource { href, status, ..Resource::default() };
            resources.extend(hrefs.into_iter().map(only_status));
            return Ok(());
        }
        if found.collection {
            // Some servers send the size of the directory itself.
            found.size = None;
        }
        let href = hrefs.pop().ok_or(MultistatusError::MissingHref)?;
        resources.push(Resource { href, status, ..found });
        Ok(())
    }
}

impl Resource {
    fn set(&mut self, property: Property, text: &str) {
        let owned = || (!text.is_empty()).then(|| text.to_owned());
        match property {
            Property::ResourceType | Property::Collection | Property::Checksums => {}
            Property::Length => self.size = text.parse().ok(),
            Property::Modified => self.modified = dates::parse(text),
            Property::Etag => self.etag = owned(),
            Property::QuotaUsed => self.quota_used = text.parse().ok(),
            Property::QuotaAvailable => self.quota_available = text.parse().ok(),
            Property::ContentType => self.content_type = owned(),
            Property::Permissions => self.permissions = owned(),
            Property::Checksum => {
                self.checksums.extend(text.split_ascii_whitespace().map(str::to_owned));
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.collection |= other.collection;
        self.size = other.size.or(self.size);
        self.modified = other.modified.or(self.modified);
        self.etag = other.etag.or(self.etag.take());
        self.quota_used = other.quota_used.or(self.quota_used);
        self.quota_available = other.quota_available.or(self.quota_available);
        self.content_type = other.content_type.or(self.content_type.take());
        self.permissions = other.permissions.or(self.permissions.take());
        self.checksums.extend(other.checksums);
    }
}

/// The number in `HTTP/1.1 200 OK`.
fn status(line: &str) -> Option<u16> {
    let mut words = line.split_ascii_whitespace();
    let number = words.find(|word| !word.starts_with("HTTP/"))?;
    number.parse().ok().filter(|status| (100..=599).contains(status))
}
