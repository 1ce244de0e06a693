//! The baseline for haul's copying with a digest: a plain pipeline.
//!
//! `plain-pipeline SOURCE DEST` copies all files of the directory SOURCE (one level) at once, each with
//! a reader, a hasher and a writer thread and queues of 10 blocks of 128 KiB between them; SHA-256;
//! the digests go to DEST/SHA256SUMS. No part files, no journal, no metadata: the obvious first version.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use sha2::{Digest, Sha256};

const BLOCK: usize = 128 << 10;
const QUEUE: usize = 10;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let outcome = match arguments.as_slice() {
        [source, destination] => copy_directory(source, destination),
        _ => Err(io::Error::other("usage: plain-pipeline SOURCE DEST")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "plain-pipeline: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn copy_directory(source: &Path, destination: &Path) -> io::Result<()> {
    fs::create_dir_all(destination)?;
    let mut copies = Vec::new();
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let to = destination.join(entry.file_name());
        copies.push((entry.file_name(), thread::spawn(move || copy_file(&entry.path(), &to))));
    }
    let mut manifest = File::create(destination.join("SHA256SUMS"))?;
    for (name, copy) in copies {
        let digest = copy.join().map_err(|_| io::Error::other("a thread panicked"))??;
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(manifest, "{digest}  {}", name.to_string_lossy())?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> io::Result<Vec<u8>> {
    let mut source = File::open(from)?;
    let mut destination = File::create(to)?;
    let (to_hasher, hasher_blocks) = sync_channel::<Arc<Vec<u8>>>(QUEUE);
    let (to_writer, writer_blocks) = sync_channel::<Arc<Vec<u8>>>(QUEUE);
    let hasher = thread::spawn(move || {
        let mut hash = Sha256::new();
        for block in hasher_blocks {
            hash.update(block.as_slice());
        }
        hash.finalize().to_vec()
    });
    let writer = thread::spawn(move || -> io::Result<()> {
        writer_blocks.into_iter().try_for_each(|block| destination.write_all(&block))
    });
    loop {
        let mut block = vec![0; BLOCK];
        let length = source.read(&mut block)?;
        if length == 0 {
            break;
        }
        block.truncate(length);
        let block = Arc::new(block);
        // A stage that has ended returns its error when it is joined.
        if to_hasher.send(Arc::clone(&block)).is_err() || to_writer.send(block).is_err() {
            break;
        }
    }
    drop((to_hasher, to_writer));
    let panicked = |_| io::Error::other("a thread panicked");
    writer.join().map_err(panicked)??;
    hasher.join().map_err(panicked)
}
