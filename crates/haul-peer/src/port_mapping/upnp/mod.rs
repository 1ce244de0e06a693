//! Mappings by UPnP (`WANIPConnection`, `WANPPPConnection`): a search by UDP, then HTTP requests.
//!
//! ```text
//! search → URL of the description → xml: services → GetExternalIPAddress → AddPortMapping → DeletePortMapping
//! ```
//!
//! Requests go only to the router's own address (`url`); responses are bounded (`http`) and parsed without recursion
//! (`xml`). The crate `igd-next` (0.18) is not used: each element of its tree has a copy of all namespaces in scope, so
//! a document of 1 MiB, its limit, can take gigabytes.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod http;
mod search;
mod url;
mod xml;

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::time::Duration;

use haul_storage::{Error, Result};

use self::url::RouterUrl;
use super::external::external;
use super::gateway::Route;
use super::limits;
use super::refusal::refused;
use crate::ticket::Address;

/// How many external ports are tried while they belong to other machines.
const ATTEMPTS: usize = 4;

/// The lowest random external port.
const LOWEST: u16 = 32_768;

/// A fault of `AddPortMapping`: the external port belongs to another machine.
const CONFLICT: u16 = 718;

/// The WAN connection of a router.
#[derive(Debug)]
pub(super) struct Service {
    control: RouterUrl,
    kind: &'static str,
    /// The router's external address.
    ip: Ipv4Addr,
    /// This machine's address.
    own: Ipv4Addr,
}

/// A mapping of a router.
#[derive(Debug)]
pub(super) struct Mapping {
    service: Service,
    port: NonZeroU16,
    address: Address,
}

/// Why a request has failed.
#[derive(Debug)]
enum Fault {
    /// The router's error code.
    Code(u16),
    /// No response, or an unusable one.
    Failed(Error),
}

/// Finds the router's WAN connection. Changes nothing.
///
/// # Errors
/// If the router does not respond, or has no WAN connection with an address.
pub(super) async fn find(route: Route) -> Result<Service> {
    let location = search::search(route).await?;
    let document = http::get(&location).await?;
    let described = xml::description(&document)
        .ok_or_else(|| refused("the router's description is malformed"))?;
    let base = described.base.and_then(|base| RouterUrl::parse(&base, route.gateway));
    let base = base.unwrap_or(location);
    let mut last = refused("the router has no WAN connection that maps ports");
    for described in described.services {
        let Some(control) = base.join(&described.control) else { continue };
        let (kind, own) = (described.kind, route.own);
        let mut service = Service { control, kind, ip: Ipv4Addr::UNSPECIFIED, own };
        match service.external_ip().await {
            Ok(ip) if !ip.is_unspecified() => {
                service.ip = ip;
                return Ok(service);
            }
            Ok(_) => last = refused("the router has no external address"),
            Err(fault) => last = fault.into(),
        }
    }
    Err(last)
}

impl Service {
    /// Maps a TCP port, to the same external one if that is free.
    ///
    /// # Errors
    /// If the router does not respond or refuses it, or is itself behind another router.
    pub(super) async fn map(self, port: NonZeroU16) -> Result<Mapping> {
        let mut address = external(IpAddr::V4(self.ip), port.get())?;
        for _ in 0..ATTEMPTS {
            match self.add(port, address).await {
                Ok(()) => return Ok(Mapping { service: self, port, address }),
                Err(Fault::Code(CONFLICT)) => {
                    address = external(IpAddr::V4(self.ip), random_port()?)?;
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(Fault::Code(CONFLICT).into())
    }

    async fn external_ip(&self) -> Result<Ipv4Addr, Fault> {
        let text = self.request("GetExternalIPAddress", "").await?;
        let ip = xml::text_of(&text, "NewExternalIPAddress").and_then(|ip| ip.parse().ok());
        ip.ok_or_else(|| Fault::Failed(refused("the router does not report its address")))
    }

    async fn add(&self, port: NonZeroU16, external: Address) -> Result<(), Fault> {
        let (own, external) = (self.own, external.socket().port());
        let lease = limits::LEASE.as_secs();
        let arguments = format!(
            "<NewRemoteHost></NewRemoteHost><NewExternalPort>{external}</NewExternalPort>\
             <NewProtocol>TCP</NewProtocol><NewInternalPort>{port}</NewInternalPort>\
             <NewInternalClient>{own}</NewInternalClient><NewEnabled>1</NewEnabled>\
             <NewPortMappingDescription>haul</NewPortMappingDescription>\
             <NewLeaseDuration>{lease}</NewLeaseDuration>"
        );
        self.request("AddPortMapping", &arguments).await.map(drop)
    }

    /// Sends a request; returns the body of the response.
    async fn request(&self, action: &str, arguments: &str) -> Result<String, Fault> {
        let kind = self.kind;
        let body = format!(
            "<?xml version=\"1.0\"?>\r\n<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
             s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body><u:{action} xmlns:u=\"{kind}\">\
             {arguments}</u:{action}></s:Body></s:Envelope>\r\n"
        );
        let named = format!("\"{kind}#{action}\"");
        let response = http::post(&self.control, &named, body).await.map_err(Fault::Failed)?;
        if response.is_ok {
            return Ok(response.text);
        }
        let code = xml::text_of(&response.text, "errorCode").and_then(|code| code.parse().ok());
        let code = code.map(Fault::Code);
        Err(code.unwrap_or_else(|| Fault::Failed(refused(format!("the router refuses {action}")))))
    }
}

impl Mapping {
    /// The address at which others reach it.
    pub(super) const fn address(&self) -> Address {
        self.address
    }

    /// How long it lasts from its last renewal. The router does not report what it has granted.
    pub(super) const fn lease(&self) -> Duration {
        limits::LEASE
    }

    /// Renews its lease. Its address may be another one afterwards.
    ///
    /// # Errors
    /// If the router does not respond or refuses it. The mapping lasts until its lease is over.
    pub(super) async fn renew(&mut self) -> Result<()> {
        let ip = self.service.external_ip().await?;
        let address = external(IpAddr::V4(ip), self.address.socket().port())?;
        self.service.add(self.port, address).await?;
        self.service.ip = ip;
        self.address = address;
        Ok(())
    }

    /// Removes it.
    ///
    /// # Errors
    /// If the router does not respond or refuses it.
    pub(super) async fn remove(self) -> Result<()> {
        let arguments = format!(
            "<NewRemoteHost></NewRemoteHost><NewExternalPort>{}</NewExternalPort>\
             <NewProtocol>TCP</NewProtocol>",
            self.address.socket().port()
        );
        self.service.request("DeletePortMapping", &arguments).await?;
        Ok(())
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let code = match fault {
            Fault::Code(code) => code,
            Fault::Failed(error) => return error,
        };
        let cause = match code {
            401 | 602 => "it does not map ports",
            606 => "it does not permit this machine to map ports",
            CONFLICT => "the port belongs to another machine",
            // Such a mapping would remain if haul is killed.
            725 => "it supports only permanent mappings",
            728 => "it has no more mappings",
            _ => "",
        };
        let reason = if cause.is_empty() { String::new() } else { format!(": {cause}") };
        refused(format!("the router refuses it (error {code}{reason})"))
    }
}

/// An external port that is probably free.
fn random_port() -> Result<u16> {
    let mut bytes = [0; 2];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| refused("the system has no random numbers"))?;
    Ok(u16::from_be_bytes(bytes) | LOWEST)
}
