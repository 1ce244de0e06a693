//! The state that all connections of a bridge share.

use std::sync::Arc;

use haul_net::Observer;
use rustls::ServerConfig;

use super::super::room::TokenKey;
use super::account::Accounts;
use super::action::BridgeAction;
use super::limits::{BridgeLimits, JoinRate};
use super::metrics::Metrics;
use super::pairing::Pairing;
use super::rooms::Rooms;

/// A bridge.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) tls: Arc<ServerConfig>,
    /// The token that sharers have to know; `None` if the bridge is open.
    pub(super) token: Option<TokenKey>,
    pub(super) limits: BridgeLimits,
    pub(super) rooms: Arc<Rooms>,
    pub(super) pairing: Arc<Pairing>,
    pub(super) joins: JoinRate,
    /// Limits requests for the numbers of spoken codes.
    pub(super) codes: JoinRate,
    pub(super) accounts: Accounts,
    pub(super) metrics: Arc<Metrics>,
    pub(super) observer: Observer<BridgeAction>,
}
