//! `haul share --web`: the page of `haul serve dav` for people without haul, with TLS, and with a password that is
//! generated for this run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use haul_http::server::{ClientEvent, Credentials, DavServer, DavServerBuilder, ServerTls};
use haul_sftp::server::Password;
use haul_storage::{Error, Result};
use serde::Serialize;
use tempfile::TempDir;

use super::addresses::for_others;
use super::contents::ShareRoot;
use super::log::{Log, LogEnd};
use super::qr;
use super::server_args::state_path;
use crate::args::ShareArgs;
use crate::exit::Stop;
use crate::output::Printer;

/// The only user.
const USER: &str = "haul";

/// A page that is served: its URLs, and what is needed to log in.
#[derive(Serialize)]
pub(super) struct Page {
    urls: Vec<String>,
    user: &'static str,
    password: String,
    fingerprint: String,
    read_only: bool,
}

/// The running server of a page.
pub(super) struct Web {
    pub(super) page: Page,
    server: DavServer,
    log_end: LogEnd,
    /// A directory with a symbolic link for each item; `None` if one directory is served. Removed when this is dropped.
    _names: Option<TempDir>,
}

impl Web {
    /// Serves the page; `None` without `--web`.
    pub(super) async fn start(
        args: &ShareArgs,
        root: ShareRoot,
        printer: &Printer,
    ) -> Result<Option<Self>, Stop> {
        let Some(listen) = args.web else { return Ok(None) };
        let tls = match args.ephemeral {
            true => ServerTls::self_signed(&[])?,
            false => ServerTls::read_or_create(
                &state_path("dav_self_signed.pem", "XDG_STATE_HOME")?,
                &[],
            )?,
        };
        let fingerprint = tls.fingerprint().to_owned();
        let (_, password) = Password::random()?;
        let (builder, names) = builder(root)?;
        let (observer, log_end) = Log::<ClientEvent>::observer(printer)?;
        let server = builder
            .observer(observer)
            .listen(listen)
            .credentials(Credentials::new(USER, &password))
            .tls(tls)
            .read_only(!args.writable)
            .bind()
            .await?;
        let addresses = for_others(&[server.address()]);
        let page = Page {
            urls: addresses.iter().map(|address| format!("https://{address}/")).collect(),
            user: USER,
            password,
            fingerprint,
            read_only: !args.writable,
        };
        Ok(Some(Self { page, server, log_end, _names: names }))
    }

    /// Stops the server. Downloads in progress may complete within two seconds.
    pub(super) async fn stop(self) {
        self.server.stop().await;
        self.log_end.wait();
    }
}

impl Page {
    /// Prints URLs, user, password and fingerprint, and with `with_qr` a QR code of the first URL.
    pub(super) fn print(&self, with_qr: bool, printer: &Printer) -> Result<()> {
        for url in &self.urls {
            printer.result(format!("web      {url}"));
        }
        if let Some(url) = self.urls.first().filter(|_| with_qr) {
            qr::lines(url)?.into_iter().for_each(|line| printer.result(line));
        }
        printer.result(format!("user     {}", self.user));
        printer.result(format!("password {}", self.password));
        printer.result(format!("cert     SHA-256 {}", self.fingerprint));
        printer.result("Browsers warn about the certificate: compare its fingerprint.");
        Ok(())
    }
}

/// The server for the contents of a share, and the directory with a link for each item, if any.
fn builder(root: ShareRoot) -> Result<(DavServerBuilder, Option<TempDir>)> {
    let items = match root {
        ShareRoot::Directory(path) => return Ok((DavServer::builder(path), None)),
        ShareRoot::Items(items) => items,
    };
    let failed = |error| Error::from_io("serve the page", error);
    let names = tempfile::Builder::new().prefix("haul-share-").tempdir().map_err(failed)?;
    for (name, _) in &items {
        // Any target will do: the server opens the items by their paths.
        symlink(".", names.path().join(OsStr::from_bytes(name))).map_err(failed)?;
    }
    Ok((DavServer::builder(names.path()).items(items), Some(names)))
}
