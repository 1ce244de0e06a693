//! Entry points of the fuzz targets.

use crate::fuse::{Change, Negotiated, Operation, Request, negotiate};

/// Decodes any bytes as a request of the kernel. Panics if the result cannot come from these bytes.
pub fn request(data: &[u8]) {
    let Ok(request) = Request::decode(data) else { return };
    match request.operation {
        Operation::Lookup(name) => assert!(!name.contains(&0) && name.len() < data.len()),
        Operation::BatchForget(nodes) => assert!(nodes.len() * 16 <= data.len()),
        Operation::Change(Change::Write { data: written, .. }) => {
            assert!(written.len() < data.len());
        }
        Operation::Init(offered) => {
            if let Negotiated::Ready(body) | Negotiated::Again(body) = negotiate(&offered) {
                assert_eq!(body.len(), 64);
            }
        }
        _ => {}
    }
}
