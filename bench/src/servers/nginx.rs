//! nginx: files by GET with ranges and an index, uploads by PUT, with or without TLS,
//! to everybody as fast as it can or with limits.

use std::fs;
use std::io;

use super::recipe::{Place, Recipe, program};
use super::{clients, tls};

const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;
/// Where Debian's packages put modules that are loaded at run time.
const DAV_MODULE: &str = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";

/// How it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Plain,
    Tls,
    /// Slowly to each connection, and only to some at once, as a mirror does that many come to.
    Limited,
}

/// See [`Manner::Limited`]. A request on one connection more is answered with 503. The rate is that of
/// each answer, and its first second is sent at once: small ranges are not slowed down.
const LIMITS: &str = "limit_conn_zone $binary_remote_addr zone=clients:1m;\n \
     limit_conn clients 12;\n limit_rate 1m;\n";

pub(super) fn recipe(place: Place<'_>, manner: Manner) -> io::Result<Recipe> {
    let with_tls = manner == Manner::Tls;
    let nginx = program("nginx", "nginx-light libnginx-mod-http-dav-ext")?;
    let (private, root, host) = (place.private.display(), place.root.display(), place.address);
    let (port, mut ssl, mut cacert) = (if with_tls { TLS_PORT } else { PORT }, "", String::new());
    let mut keys = String::new();
    if with_tls {
        let files = tls::certificate(place)?;
        ssl = " ssl";
        cacert = files.authority.display().to_string();
        let (certificate, key) = (files.certificate.display(), files.key.display());
        // Older ones than 1.23.4 leave TLS 1.3 out unless they are told: Debian 12's is one.
        keys = format!(
            "ssl_certificate {certificate};\nssl_certificate_key {key};\n\
             ssl_protocols TLSv1.2 TLSv1.3;\n"
        );
    }
    let extended = fs::exists(DAV_MODULE)?;
    let module = if extended { format!("load_module {DAV_MODULE};\n") } else { String::new() };
    let methods = if extended { "dav_ext_methods PROPFIND OPTIONS;\n" } else { "" };
    let limits = if manner == Manner::Limited { LIMITS } else { "" };
    let configuration = place.private.join("nginx.conf");
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
    let rclone = clients::rclone_config(place.private, &settings)?;
    let mut command = place.namespace.command(nginx);
    command.arg("-e").arg(place.private.join("error.log")).arg("-c").arg(&configuration);
    let mut variables = vec![("RCLONE_CONFIG", rclone), ("CACERT", cacert.clone())];
    if with_tls {
        variables.push(("RCLONE_CA_CERT", cacert));
    }
    Ok(Recipe { command, port, variables, scheme, prefix: String::new() })
}
