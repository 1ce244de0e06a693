//! Parses what a router sends: its description, and its responses to SOAP requests. The parser does not recurse, and
//! needs no more memory than the document; a document type, which could define entities, is refused.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;

use crate::port_mapping::limits;

/// The services that map ports.
const KINDS: [&str; 3] = [
    "urn:schemas-upnp-org:service:WANIPConnection:2",
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
];

/// The parts of a description that haul needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    /// The base of relative references, if it is not the description's own URL.
    pub(super) base: Option<String>,
    /// The services that map ports, in the order of the document.
    pub(super) services: Vec<Described>,
}

/// A service that maps ports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Described {
    /// One of [`KINDS`].
    pub(super) kind: &'static str,
    /// A reference to the URL for its requests.
    pub(super) control: String,
}

/// Parses a description; `None` if it is malformed.
pub(super) fn description(document: &str) -> Option<Description> {
    let mut found = Description::default();
    let (mut kind, mut control) = (None, String::new());
    elements(document, |name, text| match name {
        "URLBase" if !text.is_empty() => found.base = Some(text.to_owned()),
        "serviceType" => kind = KINDS.into_iter().find(|known| *known == text),
        "controlURL" => control = text.to_owned(),
        "service" => {
            let control = std::mem::take(&mut control);
            if let Some(kind) = kind.take()
                && !control.is_empty()
                && found.services.len() < limits::SERVICES
            {
                found.services.push(Described { kind, control });
            }
        }
        _ => {}
    })?;
    Some(found)
}

/// The text of the first element of this name; `None` if there is none, or the document is malformed.
pub(super) fn text_of(document: &str, name: &str) -> Option<String> {
    let mut found = None;
    elements(document, |element, text| {
        if element == name && found.is_none() {
            found = Some(text.to_owned());
        }
    })?;
    found
}

/// Calls `visit` at the end of each element, with its name without the prefix and the text after its last child. `None`
/// if the document is malformed.
fn elements(document: &str, mut visit: impl FnMut(&str, &str)) -> Option<()> {
    let mut reader = Reader::from_str(document.trim_start_matches('\u{feff}'));
    let mut content = String::new();
    let mut depth = 0_usize;
    loop {
        match reader.read_event().ok()? {
            Event::Start(_) => {
                depth += 1;
                content.clear();
            }
            Event::Empty(start) => {
                visit(start.local_name().into_inner(), "");
                content.clear();
            }
            Event::End(end) => {
                depth = depth.checked_sub(1)?;
                visit(end.local_name().into_inner(), content.trim());
                content.clear();
            }
            Event::Text(text) => content.push_str(&text.into_inner()),
            Event::CData(data) => content.push_str(&data.into_inner()),
            Event::GeneralRef(name) => match name.resolve_char_ref().ok()? {
                Some(character) => content.push(character),
                None => content.push_str(resolve_xml_entity(&name.into_inner())?),
            },
            Event::DocType(_) => return None,
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            Event::Eof => return (depth == 0).then_some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As miniupnpd sends it, shortened.
    const MINIUPNPD: &str = r#"<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0" configId="1337"><specVersion><major>1</major><minor>1</minor></specVersion>
<device><deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:2</deviceType><serviceList><service>
<serviceType>urn:schemas-upnp-org:service:Layer3Forwarding:1</serviceType><SCPDURL>/L3F.xml</SCPDURL>
<controlURL>/ctl/L3F</controlURL></service></serviceList><deviceList><device><deviceList><device><serviceList><service>
<serviceType>urn:schemas-upnp-org:service:WANIPConnection:2</serviceType><controlURL>/ctl/IPConn</controlURL>
<eventSubURL/></service></serviceList></device></deviceList></device></deviceList></device></root>"#;

    #[test]
    fn a_description_has_the_services_that_map_ports() {
        let found = description(MINIUPNPD).unwrap();
        let expected = Described { kind: KINDS[0], control: "/ctl/IPConn".to_owned() };
        assert_eq!(found, Description { base: None, services: vec![expected] });
    }

    #[test]
    fn prefixes_references_and_the_base_are_understood() {
        let text = "\u{feff}<a:root xmlns:a='urn:schemas-upnp-org:device-1-0'><a:URLBase> http://10.0.0.1:80/ \
                    </a:URLBase><a:service><a:controlURL>/c?a=1&amp;b=&#50;</a:controlURL><a:serviceType>\
                    <![CDATA[urn:schemas-upnp-org:service:WANPPPConnection:1]]></a:serviceType></a:service></a:root>";
        let found = description(text).unwrap();
        assert_eq!(found.base.as_deref(), Some("http://10.0.0.1:80/"));
        let expected = Described { kind: KINDS[2], control: "/c?a=1&b=2".to_owned() };
        assert_eq!(found.services, [expected]);
    }

    #[test]
    fn the_parts_of_one_service_are_not_those_of_another() {
        let service = "<service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType></service>\
                       <service><controlURL>/other</controlURL></service>";
        assert_eq!(description(&format!("<root>{service}</root>")).unwrap().services, []);
        let many = "<service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>\
                    <controlURL>/c</controlURL></service>";
        let many = format!("<root>{}</root>", many.repeat(1000));
        assert_eq!(description(&many).unwrap().services.len(), limits::SERVICES);
    }

    #[test]
    fn the_text_of_a_response_is_found() {
        let text = "<s:Envelope xmlns:s='e'><s:Body><u:R xmlns:u='r'><NewExternalIPAddress>203.0.113.7\
                    </NewExternalIPAddress></u:R></s:Body></s:Envelope>";
        assert_eq!(text_of(text, "NewExternalIPAddress").as_deref(), Some("203.0.113.7"));
        assert_eq!(text_of(text, "errorCode"), None);
    }

    #[test]
    fn malformed_and_harmful_documents_are_refused() {
        let deep = "<a>".repeat(80_000);
        for text in [
            "<a>",
            "<a></b>",
            "</a>",
            "<a>&x;</a>",
            "<a>&#0;</a>",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            &deep,
        ] {
            assert_eq!(description(text), None, "{}", &text[..text.len().min(60)]);
            assert_eq!(text_of(text, "a"), None);
        }
        let closed = format!("{deep}{}", "</a>".repeat(80_000));
        assert_eq!(description(&closed), Some(Description::default()));
    }
}
