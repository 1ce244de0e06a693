//! The names of part files.

use haul_storage::{BriefClaim, Claim, Error, ErrorKind, RelPath, Result};

use super::inner::Inner;

impl Inner {
    /// Claims the part file of an upload.
    pub(super) async fn claim(&self, path: &RelPath) -> Claim {
        self.uploads.claim(self.upload_key(path)).await
    }

    pub(super) fn upload_key(&self, path: &RelPath) -> Vec<u8> {
        let on_server = self.on_server(path);
        format!("{}\0{}", self.host.lanes.host(), on_server.escape_ascii()).into_bytes()
    }

    /// The part file of an upload.
    pub(super) fn part_of(&self, path: &RelPath, claim: &Claim) -> Result<RelPath> {
        self.beside(path, claim.part_name(path.name()))
    }

    /// The part file of a small file or a link, which is reserved as long as the claim exists.
    pub(super) async fn brief_part_of(&self, path: &RelPath) -> Result<(RelPath, BriefClaim)> {
        let claim = self.uploads.claim_brief(self.upload_key(path)).await;
        Ok((self.beside(path, claim.part_name(path.name()))?, claim))
    }

    fn beside(&self, path: &RelPath, name: Vec<u8>) -> Result<RelPath> {
        path.with_name(name).map_err(|refused| {
            let error = Error::new(ErrorKind::InvalidInput, "create");
            self.at(error.because(format!("the name {refused}")), path)
        })
    }
}
