//! nginx: downloads with ranges and an index page, WebDAV for uploads; with or without TLS and rate limits.

use std::fs;
use std::io;

use super::recipe::{Recipe, Site, program};
use super::{clients, tls};

const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;
/// Path of the WebDAV extension module in Debian's package.
const DAV_MODULE: &str = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";

/// Variant of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Plain,
    Tls,
    /// With a limit on the rate and on the number of connections, like a busy mirror.
    Limited,
}

/// The limits of [`Variant::Limited`]: 12 connections per client, 1 MiB/s per response. Further connections get 503.
/// The first MiB of a response is sent at once, so small ranges are not slowed down.
const LIMITS: &str = "limit_conn_zone $binary_remote_addr zone=clients:1m;\n \
     limit_conn clients 12;\n limit_rate 1m;\n";

pub(super) fn recipe(site: Site<'_>, variant: Variant) -> io::Result<Recipe> {
    let with_tls = variant == Variant::Tls;
    let nginx = program("nginx", "nginx-light libnginx-mod-http-dav-ext")?;
    let (private, root, host) = (site.private.display(), site.root.display(), site.address);
    let (port, mut ssl, mut cacert) = (if with_tls { TLS_PORT } else { PORT }, "", String::new());
    let mut keys = String::new();
    if with_tls {
        let files = tls::certificate(site)?;
        ssl = " ssl";
        cacert = files.authority.display().to_string();
        let (certificate, key) = (files.certificate.display(), files.key.display());
        // Versions before 1.23.4, such as that of Debian 12, do not enable TLS 1.3 by default.
        keys = format!(
            "ssl_certificate {certificate};\nssl_certificate_key {key};\n\
             ssl_protocols TLSv1.2 TLSv1.3;\n"
        );
    }
    let extended = fs::exists(DAV_MODULE)?;
    let module = if extended { format!("load_module {DAV_MODULE};\n") } else { String::new() };
    let methods = if extended { "dav_ext_methods PROPFIND OPTIONS;\n" } else { "" };
    let limits = if variant == Variant::Limited { LIMITS } else { "" };
    let configuration = site.private.join("nginx.conf");
    fs::write(
        &configuration,
        format!(
            "{module}daemon off;\nuser root;\nworker_processes auto;\npid {private}/nginx.pid;\n\
             error_log {private}/error.log;\nevents {{ worker_connections 1024; }}\n\
             http {{\n access_log off;\n sendfile on;\n tcp_nopush on;\n default_type \
             application/octet-stream;\n client_body_temp_path {private}/body;\n proxy_temp_path \
             {private}/proxy;\n fastcgi_temp_path {private}/fastcgi;\n uwsgi_temp_path \
             {private}/uwsgi;\n scgi_temp_path {private}/scgi;\n {limits} server {{\n listen {host}:{port}{ssl};\n \
             {keys} root {root};\n autoindex on;\n client_max_body_size 0;\n \
             location / {{ dav_methods PUT DELETE MKCOL COPY MOVE;\n {methods} \
             create_full_put_path on; dav_access user:rw group:rw all:rw; }}\n }}\n}}\n"
        ),
    )?;
    let scheme = if with_tls { "https" } else { "http" };
    let settings = format!("type = http\nurl = {scheme}://{host}:{port}/\n");
    let rclone = clients::rclone_config(site.private, &settings)?;
    let mut command = site.namespace.command(nginx);
    command.arg("-e").arg(site.private.join("error.log")).arg("-c").arg(&configuration);
    let mut variables = vec![("RCLONE_CONFIG", rclone), ("CACERT", cacert.clone())];
    if with_tls {
        variables.push(("RCLONE_CA_CERT", cacert));
    }
    Ok(Recipe { command, port, variables, scheme, prefix: String::new() })
}
