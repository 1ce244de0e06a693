//! Media types by file name.

/// The media type of a file, by its extension. Text is assumed to be UTF-8.
pub(super) fn of(name: &[u8]) -> &'static str {
    let Some(dot) = name.iter().rposition(|byte| *byte == b'.') else { return UNKNOWN };
    let end = String::from_utf8_lossy(&name[dot + 1..]).to_ascii_lowercase();
    TYPES.iter().find(|(ends, _)| ends.contains(&end.as_str())).map_or(UNKNOWN, |(_, kind)| kind)
}

/// Whether a browser would run scripts in a file of this type, with the origin of this server.
pub(super) fn is_active(kind: &str) -> bool {
    ["html", "xml", "svg"].iter().any(|active| kind.contains(active))
}

const UNKNOWN: &str = "application/octet-stream";

const TYPES: &[(&[&str], &str)] = &[
    (&["txt", "text", "log", "md", "sha256", "b3"], "text/plain; charset=utf-8"),
    (&["html", "htm"], "text/html; charset=utf-8"),
    (&["css"], "text/css; charset=utf-8"),
    (&["csv"], "text/csv; charset=utf-8"),
    (&["js", "mjs"], "text/javascript; charset=utf-8"),
    (&["xhtml"], "application/xhtml+xml"),
    (&["xml"], "application/xml"),
    (&["json"], "application/json"),
    (&["pdf"], "application/pdf"),
    (&["zip"], "application/zip"),
    (&["gz", "tgz"], "application/gzip"),
    (&["zst"], "application/zstd"),
    (&["tar"], "application/x-tar"),
    (&["iso"], "application/x-iso9660-image"),
    (&["wasm"], "application/wasm"),
    (&["epub"], "application/epub+zip"),
    (&["png"], "image/png"),
    (&["jpg", "jpeg"], "image/jpeg"),
    (&["gif"], "image/gif"),
    (&["webp"], "image/webp"),
    (&["avif"], "image/avif"),
    (&["svg"], "image/svg+xml"),
    (&["ico"], "image/vnd.microsoft.icon"),
    (&["tif", "tiff"], "image/tiff"),
    (&["mp3"], "audio/mpeg"),
    (&["m4a"], "audio/mp4"),
    (&["ogg", "oga", "opus"], "audio/ogg"),
    (&["flac"], "audio/flac"),
    (&["wav"], "audio/wav"),
    (&["mp4", "m4v"], "video/mp4"),
    (&["webm"], "video/webm"),
    (&["mkv"], "video/x-matroska"),
    (&["mov"], "video/quicktime"),
    (&["ttf"], "font/ttf"),
    (&["woff"], "font/woff"),
    (&["woff2"], "font/woff2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_determines_the_media_type() {
        assert_eq!(of(b"a.TXT"), "text/plain; charset=utf-8");
        assert_eq!(of(b"a.tar.gz"), "application/gzip");
        assert_eq!(of(b"a"), UNKNOWN);
        assert_eq!(of(b"a.\xff"), UNKNOWN);
        assert!(is_active(of(b"a.svg")) && is_active(of(b"a.htm")) && !is_active(of(b"a.pdf")));
    }
}
