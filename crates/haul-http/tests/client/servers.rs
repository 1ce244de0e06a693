//! WebDAV and HTTP servers from Debian packages, each with a directory of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use haul_bench::guard::end_with_thread;
use tempfile::{TempDir, TempPath};

use crate::port::free_port;

const MODULES: &str = "/usr/lib/apache2/modules";
const DAV_MODULE: &str = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";

/// A server that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    dir: TempDir,
}

impl Server {
    /// The served directory.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Names of the entries in the served directory.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("root")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // mod_dav_fs stores properties in `.DAV`.
        names.filter(|name| name != ".DAV").collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM, so that its workers end too.
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Apache with mod_dav and mod_dav_fs.
pub(crate) fn apache() -> Option<Server> {
    apache_with(&[], "")
}

/// Apache with additional modules, and configuration lines for its directory.
pub(crate) fn apache_with(more: &[&str], lines: &str) -> Option<Server> {
    configured(more, lines, "")
}

/// Apache that closes each connection after `after` requests, and logs all requests.
pub(crate) fn apache_that_hangs_up(after: usize) -> Option<(Server, TempPath)> {
    let log = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let lines = format!(
        "MaxKeepAliveRequests {after}\nLogFormat \"%r %>s %{{Content-Range}}i\" plain\n\
         CustomLog {} plain\n",
        log.display()
    );
    Some((configured(&["log_config"], "", &lines)?, log))
}

fn configured(more: &[&str], lines: &str, global: &str) -> Option<Server> {
    let program = program("apache2", "apache2")?;
    let (dir, root, port) = server_directory();
    let private = dir.path().display();
    let mut modules = String::new();
    let usual = ["mpm_event", "authz_core", "dir", "autoindex", "mime", "dav", "dav_fs"];
    for name in usual.iter().chain(more) {
        // Built-in modules have no file.
        let path = format!("{MODULES}/mod_{name}.so");
        if Path::new(&path).exists() {
            modules += &format!("LoadModule {name}_module {path}\n");
        }
    }
    let user = match rustix::process::geteuid().is_root() {
        true => "User www-data\nGroup www-data\n",
        false => "",
    };
    let locks = dir.path().join("locks");
    fs::create_dir(&locks).unwrap();
    if !user.is_empty() {
        let www_data = id("www-data")?;
        chown(&root, Some(www_data), None).unwrap();
        chown(&locks, Some(www_data), None).unwrap();
    }
    let text = format!(
        "{modules}ServerRoot {private}\nServerName 127.0.0.1\nListen 127.0.0.1:{port}\n\
         PidFile {private}/apache.pid\nDefaultRuntimeDir {private}\nErrorLog {private}/error.log\n\
         {user}TypesConfig /dev/null\nDocumentRoot {root}\nLimitRequestBody 0\n\
         DavLockDB {private}/locks/lock\n<Directory {root}>\n{access}\nOptions Indexes\n\
         IndexOptions FancyIndexing\nDav On\nAllowOverride None\n{lines}\n</Directory>\n{global}",
        root = root.display(),
        access = if lines.contains("Require") { "" } else { "Require all granted" },
    );
    let configuration = dir.path().join("apache.conf");
    fs::write(&configuration, text).unwrap();
    let mut command = Command::new(program);
    command.args(["-D", "FOREGROUND", "-f"]).arg(&configuration);
    Some(start(command, dir, port))
}

/// nginx with its DAV module, and the module for PROPFIND.
pub(crate) fn nginx() -> Option<Server> {
    let program = program("nginx", "nginx")?;
    if !Path::new(DAV_MODULE).exists() {
        return skipped("libnginx-mod-http-dav-ext");
    }
    let (dir, root, port) = server_directory();
    let private = dir.path().display();
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let text = format!(
        "load_module {DAV_MODULE};\ndaemon off;\n{user}worker_processes 1;\n\
         pid {private}/nginx.pid;\nerror_log {private}/error.log;\n\
         events {{ worker_connections 256; }}\nhttp {{\n access_log off;\n\
         default_type application/octet-stream;\n client_body_temp_path {private}/body;\n\
         proxy_temp_path {private}/p;\n fastcgi_temp_path {private}/f;\n\
         uwsgi_temp_path {private}/u;\n scgi_temp_path {private}/s;\n\
         server {{\n listen 127.0.0.1:{port};\n root {root};\n autoindex on;\n\
         client_max_body_size 0;\n location / {{\n dav_methods PUT DELETE MKCOL COPY MOVE;\n\
         dav_ext_methods PROPFIND OPTIONS;\n }}\n }}\n}}\n",
        root = root.display()
    );
    let configuration = dir.path().join("nginx.conf");
    fs::write(&configuration, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-e").arg(dir.path().join("error.log")).arg("-c").arg(&configuration);
    Some(start(command, dir, port))
}

/// `rclone serve webdav`.
pub(crate) fn rclone() -> Option<Server> {
    let program = program("rclone", "rclone")?;
    let (dir, root, port) = server_directory();
    let mut command = Command::new(program);
    command.args(["serve", "webdav"]).arg(root).args(["--addr", &format!("127.0.0.1:{port}")]);
    command.arg("--config").arg(dir.path().join("rclone.conf"));
    Some(start(command, dir, port))
}

/// `rclone serve http`.
pub(crate) fn rclone_web() -> Option<Server> {
    let program = program("rclone", "rclone")?;
    let (dir, root, port) = server_directory();
    let mut command = Command::new(program);
    command.args(["serve", "http"]).arg(root).args(["--addr", &format!("127.0.0.1:{port}")]);
    command.arg("--config").arg(dir.path().join("rclone.conf"));
    Some(start(command, dir, port))
}

/// Python's `http.server`, which does not support ranges.
pub(crate) fn python() -> Option<Server> {
    let program = program("python3", "python3")?;
    let (dir, root, port) = server_directory();
    let mut command = Command::new(program);
    command.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]).arg(root);
    command.arg(port.to_string());
    Some(start(command, dir, port))
}

fn start(mut command: Command, dir: TempDir, port: u16) -> Server {
    end_with_thread(&mut command);
    let log = fs::File::create(dir.path().join("output")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let mut server =
        Server { child: command.spawn().unwrap(), url: format!("http://127.0.0.1:{port}/"), dir };
    let end = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = server.child.try_wait().unwrap();
        let log = fs::read_to_string(server.dir.path().join("output")).unwrap_or_default();
        assert!(ended.is_none() && Instant::now() < end, "it does not start: {ended:?} {log}");
        sleep(Duration::from_millis(20));
    }
    server
}

/// A private directory for a server, the directory within it to serve, and a free port.
fn server_directory() -> (TempDir, PathBuf, u16) {
    let dir = tempfile::tempdir().unwrap();
    // Servers that switch to another user need access too.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    (dir, root, free_port())
}

fn program(name: &str, package: &str) -> Option<PathBuf> {
    let paths = ["/usr/sbin", "/usr/bin", "/usr/local/bin"];
    let found = paths.iter().map(|path| Path::new(path).join(name)).find(|path| path.exists());
    if found.is_none() { skipped(package) } else { found }
}

fn skipped<T>(package: &str) -> Option<T> {
    eprintln!("SKIPPED: needs the Debian package {package}");
    None
}

/// The uid of a user of this machine.
fn id(name: &str) -> Option<u32> {
    fs::read_to_string("/etc/passwd").ok()?.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}
