//! The clients of a share on a terminal, one line each: address, route, file, bytes and rate.

use indicatif::ProgressBar;
use unicode_width::UnicodeWidthStr as _;

use super::files::cut;
use super::{Printer, progress};
use crate::units::{bytes, rate};

/// The most clients that are shown.
const MOST: usize = 8;

/// Lines of the terminal that are not for clients: the cursor's, and one of what was printed before.
const OTHER_LINES: usize = 2;

/// The least width, in columns, to show the route and the bytes of a client, too.
const WIDE: usize = 60;

/// The least columns for an address: an IPv4 address fits.
const ADDRESS: usize = 15;

/// A client that is connected, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientLine {
    /// Its address.
    pub(crate) address: String,
    /// The route of its connections.
    pub(crate) route: String,
    /// The file in transfer, without control characters.
    pub(crate) file: String,
    /// Bytes so far.
    pub(crate) bytes: u64,
    /// Bytes per second over the last seconds.
    pub(crate) bytes_per_second: u64,
}

/// Shows clients below everything else that is printed.
#[derive(Debug)]
pub(crate) struct ClientDisplay {
    printer: Printer,
    /// `Some` while there is any client.
    bar: Option<ProgressBar>,
}

impl ClientDisplay {
    /// A display on the terminal; `None` if there is none, or nothing is to be drawn.
    pub(crate) fn new(printer: &Printer) -> Option<Self> {
        let is_drawn = printer.shows_progress() && printer.can_draw();
        is_drawn.then(|| Self { printer: printer.clone(), bar: None })
    }

    /// Shows these clients, and no others.
    pub(crate) fn show(&mut self, clients: &[ClientLine]) {
        if clients.is_empty() {
            return self.end();
        }
        let bar = self.bar.get_or_insert_with(|| progress::bar("{msg}"));
        self.printer.set_bar(Some(bar.clone()));
        let (width, height) = progress::drawn_size();
        bar.set_message(lines(clients, width, height).join("\n"));
    }

    /// Removes everything that is shown.
    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            self.printer.set_bar(None);
            bar.finish_and_clear();
        }
    }
}

impl Drop for ClientDisplay {
    fn drop(&mut self) {
        self.end();
    }
}

/// The lines for a terminal of this size; the last one has the number of clients that did not fit, if any.
fn lines(clients: &[ClientLine], width: usize, height: usize) -> Vec<String> {
    let room = MOST.min(height.saturating_sub(OTHER_LINES)).max(1);
    let shown = if clients.len() > room { room - 1 } else { clients.len() };
    let mut lines: Vec<_> = clients[..shown].iter().map(|one| line(one, width)).collect();
    if clients.len() > shown {
        lines.push(cut(&format!("  {} more clients", clients.len() - shown), width));
    }
    lines
}

/// One client in at most `width` columns.
fn line(client: &ClientLine, width: usize) -> String {
    let ClientLine { address, route, file, bytes: count, bytes_per_second } = client;
    let speed = rate(*bytes_per_second);
    let (start, end) = match width < WIDE {
        true => (address.clone(), format!("  {speed:>10}")),
        false => (format!("{address} {route}"), format!("  {:>8}  {speed:>10}", bytes(*count))),
    };
    let room = width.saturating_sub(end.width() + 4);
    let start = cut(&start, ADDRESS.max(room / 2).min(room));
    let room = room - start.width();
    let file = cut(file, room);
    let padding = " ".repeat(room - file.width());
    cut(&format!("  {start}  {file}{padding}{end}"), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str, file: &str) -> ClientLine {
        ClientLine {
            address: address.to_owned(),
            route: "direct".to_owned(),
            file: file.to_owned(),
            bytes: 126 << 20,
            bytes_per_second: 12 << 20,
        }
    }

    #[test]
    fn a_client_fits_into_every_width() {
        let shown = |width| line(&client("192.0.2.7", "2026/b.jpg"), width);
        assert_eq!(shown(39), "  192.0.2.7  2026/b.jpg      12.0 MiB/s");
        assert_eq!(
            shown(70),
            "  192.0.2.7 direct  2026/b.jpg                     126 MiB  12.0 MiB/s"
        );
        for width in 0..120 {
            for address in ["192.168.100.200", "2001:db8:1234:5678:9abc:def0:1234:5678"] {
                for file in ["x", "a/long/path/to/something.tar.gz", "日本語のファイル名.iso"]
                {
                    let line = line(&client(address, file), width);
                    assert!(line.width() <= width, "{width}: {line}");
                }
            }
        }
    }

    /// On a terminal of 40 columns, of which 39 are drawn.
    #[test]
    fn a_narrow_line_has_address_speed_and_part_of_the_name() {
        let line = line(&client("192.168.100.200", "holiday/2026/b.jpg"), 39);
        assert!(line.contains("192.168.100.200") && line.contains("12.0 MiB/s"), "{line}");
        assert!(line.contains("holi…jpg"), "{line}");
    }

    #[test]
    fn clients_that_do_not_fit_are_counted() {
        let clients = vec![client("192.0.2.7", "x"); 20];
        let shown = |height| lines(&clients, 39, height);
        assert_eq!(shown(24).len(), 8);
        assert_eq!(shown(24)[7], "  13 more clients");
        assert_eq!(shown(5).len(), 3);
        assert_eq!(shown(1), ["  20 more clients"]);
        assert_eq!(lines(&clients[..2], 39, 24).len(), 2);
    }
}
