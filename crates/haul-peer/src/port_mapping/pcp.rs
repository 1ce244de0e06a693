//! Mappings by PCP (RFC 6887), and by NAT-PMP (RFC 6886) if the router responds that it speaks only that: a UDP packet
//! each way, which the crate `crab_nat` writes and checks. It accepts packets only from the router's address and port,
//! and for PCP, only those with the nonce of the request.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use crab_nat::pcp::{self, BaseMapRequest};
use crab_nat::{
    GatewayAddress, InternetProtocol, MappingFailure, PortMapping, PortMappingOptions,
    PortMappingType, TimeoutConfig, natpmp,
};
use haul_storage::{Error, Result, io_cause};

use super::external::external;
use super::gateway::Route;
use super::limits;
use super::refusal::refused;
use crate::ticket::Address;

/// The router is one hop away. A lost request is repeated once.
const TIMES: TimeoutConfig = TimeoutConfig {
    initial_timeout: limits::PACKET,
    max_retries: 1,
    max_retry_timeout: Some(limits::PACKET),
};

/// A mapping of a router.
#[derive(Debug)]
pub(super) struct Mapping {
    mapping: PortMapping,
    address: Address,
}

/// Maps a TCP port, to the same external one if that is free.
///
/// # Errors
/// If the router does not respond or refuses it, or is itself behind another router.
pub(super) async fn map(route: Route, port: NonZeroU16) -> Result<Mapping> {
    let (gateway, own) = (GatewayAddress::IpV4(route.gateway), IpAddr::V4(route.own));
    let mapped = PortMapping::new(gateway, own, InternetProtocol::Tcp, port, options(port)).await;
    Mapping::checked(mapped.map_err(|failure| failed(&failure))?, None).await
}

impl Mapping {
    /// The address at which others reach it.
    pub(super) const fn address(&self) -> Address {
        self.address
    }

    /// How long it lasts from its last renewal.
    pub(super) fn lease(&self) -> Duration {
        Duration::from_secs(self.mapping.lifetime().into())
    }

    /// Renews its lease. Its address may be another one afterwards.
    ///
    /// # Errors
    /// If the router does not respond or refuses it: the mapping lasts until its lease is over. A renewed mapping
    /// without an address at which others reach it is removed. If the router renews it, but does not respond to the
    /// request for its address, the last one counts.
    pub(super) async fn renew(&mut self) -> Result<()> {
        let (gateway, port) = (self.mapping.gateway(), self.mapping.internal_port());
        let options = options(self.mapping.external_port());
        let renewed = match self.mapping.mapping_type() {
            PortMappingType::NatPmp => {
                natpmp::port_mapping(gateway, InternetProtocol::Tcp, port, options)
                    .await
                    .map_err(MappingFailure::from)
            }
            PortMappingType::Pcp { client, nonce, external_ip } => {
                let request = BaseMapRequest::new(gateway, client, InternetProtocol::Tcp, port);
                pcp::port_mapping(request, Some(nonce), Some(external_ip), options)
                    .await
                    .map_err(MappingFailure::from)
            }
        };
        let renewed = renewed.map_err(|failure| failed(&failure))?;
        *self = Self::checked(renewed, Some(self.address.socket().ip())).await?;
        Ok(())
    }

    /// Removes it.
    ///
    /// # Errors
    /// If the router does not respond or refuses it.
    pub(super) async fn remove(self) -> Result<()> {
        self.mapping.try_drop().await.map_err(|(failure, _)| failed(&failure))
    }

    /// Accepts a mapping that other machines can reach, and removes any other. `last` is the router's last address.
    async fn checked(mapping: PortMapping, last: Option<IpAddr>) -> Result<Self> {
        match reached(&mapping, last).await {
            Ok(address) => Ok(Self { mapping, address }),
            Err(error) => {
                // If that fails, the mapping ends with its lease.
                drop(mapping.try_drop().await);
                Err(error)
            }
        }
    }
}

/// The address at which others reach a mapping.
async fn reached(mapping: &PortMapping, last: Option<IpAddr>) -> Result<Address> {
    if mapping.lifetime() == 0 {
        return Err(refused("the router maps the port for 0 s"));
    }
    let ip = match mapping.mapping_type() {
        PortMappingType::Pcp { external_ip, .. } => external_ip,
        PortMappingType::NatPmp => {
            match (natpmp::external_address(mapping.gateway(), Some(TIMES)).await, last) {
                (Ok(found), _) => IpAddr::V4(found),
                (Err(natpmp::Failure::Timeout), Some(last)) => last,
                (Err(failure), _) => return Err(failed(&MappingFailure::from(failure))),
            }
        }
    };
    external(ip, mapping.external_port().get())
}

fn options(external_port: NonZeroU16) -> PortMappingOptions {
    PortMappingOptions {
        external_port: Some(external_port),
        lifetime_seconds: u32::try_from(limits::LEASE.as_secs()).ok(),
        timeout_config: Some(TIMES),
    }
}

fn failed(failure: &MappingFailure) -> Error {
    refused(match failure {
        MappingFailure::Pcp(pcp::Failure::Timeout)
        | MappingFailure::NatPmp(natpmp::Failure::Timeout) => "no response".to_owned(),
        MappingFailure::Pcp(pcp::Failure::Socket(error))
        | MappingFailure::NatPmp(natpmp::Failure::Socket(error)) => io_cause(error),
        other => other.to_string(),
    })
}
