//! The WebDAV server, in this process, with the clients that people use, and with requests that no
//! client makes.

mod clients;
mod files;
mod gate;
mod jail;
mod methods;
mod page;
mod site;
mod tls;
mod uploads;
