//! The files of attachments: taken out of a request before it is checked, and on a majority before the command that
//! names them is proposed (P20).
//!
//! So the log has only their hashes. A file of a request that is refused later is removed with the parts that no seal
//! names.

use std::collections::{BTreeMap, BTreeSet};

use reveille_cluster::file_store::{encode_attachment, spread_attachments};
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::Ledger;
use reveille_ledger::content::Content;
use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{self, ErrorReason};
use reveille_raft::crash;
use tonic::Code;

use super::services::audience::not_written;
use super::validate::Fields;
use super::{Admin, ApiError, ApiResult, Call};

/// Files that a request brought, by hash.
pub type BroughtFiles = BTreeMap<Hash, Vec<u8>>;

impl Admin {
    /// Takes the data out of the attachments of a request's content, and leaves size and hash. An attachment without
    /// data may name a file that the schedule, the campaign or the template `name` has. `path` is the field of the
    /// content. Wrong attachments are refused in `fields`.
    ///
    /// # Errors
    /// Those of [`Admin::catch_up_with_files`].
    pub(crate) async fn take_files(
        &self,
        fields: &mut Fields,
        (path, content): (&str, Option<&mut v1::Content>),
        (tenant, name): (&str, &str),
        call: &Call,
    ) -> ApiResult<BroughtFiles> {
        let Some(content) = content else { return Ok(BroughtFiles::new()) };
        if !name.is_empty() {
            self.catch_up_with_files([&*content], call).await?;
        }
        Ok(self.take_caught_up_files(fields, (path, content), (tenant, name)))
    }

    /// Waits until this node knows all files that these contents may name, if they name any.
    ///
    /// # Errors
    /// Those of [`Admin::read_latest`].
    pub(crate) async fn catch_up_with_files<'c>(
        &self,
        contents: impl IntoIterator<Item = &'c v1::Content>,
        call: &Call,
    ) -> ApiResult<()> {
        let names_any = contents.into_iter().flat_map(|content| &content.attachments).any(names_file);
        if names_any { self.read_latest(call, |_| ()).await } else { Ok(()) }
    }

    /// As [`Admin::take_files`], after [`Admin::catch_up_with_files`].
    pub(crate) fn take_caught_up_files(
        &self,
        fields: &mut Fields,
        (path, content): (&str, &mut v1::Content),
        (tenant, name): (&str, &str),
    ) -> BroughtFiles {
        let (mut brought, mut known) = (BroughtFiles::new(), None);
        for (number, attachment) in content.attachments.iter_mut().enumerate() {
            let field = format!("{path}.attachments[{number}].file_hash");
            if names_file(attachment) {
                let known =
                    known.get_or_insert_with(|| self.context.replica.read(|ledger| files_of(ledger, tenant, name)));
                match attachment.file_hash.parse().ok().and_then(|file: Hash| known.get(&file)) {
                    Some(size) => attachment.size = *size,
                    None if name.is_empty() => {
                        fields.refuse(field, "is given without data; a message brings its files")
                    }
                    None => fields.refuse(field, format!("is not that of a file which '{name}' has; give its data")),
                }
                continue;
            }
            let data = std::mem::take(&mut attachment.data);
            let (file, bytes) = encode_attachment(&data);
            if !attachment.file_hash.is_empty() && attachment.file_hash != file.to_string() {
                fields.refuse(field, "is not the hash of this data; leave it out");
            }
            (attachment.size, attachment.file_hash) = (data.len() as u64, file.to_string());
            brought.insert(file, bytes);
        }
        brought
    }

    /// Puts the files of these contents on a majority, those that the request brought first on this node, and protects
    /// them from removal as if they were new.
    ///
    /// # Errors
    /// If this node cannot write a file, or a majority does not take it: nothing has happened then.
    pub(crate) async fn store_files<'c>(
        &self,
        brought: BroughtFiles,
        contents: impl IntoIterator<Item = &'c Content>,
    ) -> ApiResult<()> {
        let attachments = contents.into_iter().flat_map(|content| &content.attachments);
        let needed: BTreeSet<Hash> = attachments.map(|attachment| attachment.file).collect();
        if needed.is_empty() {
            return Ok(());
        }
        let put = move |node: &NodeContext| brought.values().try_for_each(|file| node.files.put(file).map(drop));
        self.blocking(put).await?.map_err(|error| self.not_kept("an attachment", &error))?;
        let needed: Vec<Hash> = needed.into_iter().collect();
        let missing = spread_attachments(&self.context, &needed).await.map_err(|error| not_written(&error))?;
        if let Some(file) = missing.first() {
            let message = format!("file {file:?} of an attachment is on no node; a repeat of the request sends it");
            return Err(ApiError::new(Code::Unavailable, ErrorReason::NoQuorum, message));
        }
        crash::point("admin.upload-part");
        Ok(())
    }
}

/// Returns true for an attachment that names a stored file instead of bringing one.
fn names_file(attachment: &v1::Attachment) -> bool {
    attachment.data.is_empty() && !attachment.file_hash.is_empty()
}

/// Returns the files of the contents that have this name, with their sizes.
fn files_of(ledger: &Ledger, tenant: &str, name: &str) -> BTreeMap<Hash, u64> {
    let place = (tenant.to_owned(), name.to_owned());
    let schedule = ledger.schedule_named(tenant, name).map(|(_, schedule)| schedule.content);
    let campaign = ledger.campaigns().get(&place).map(|campaign| campaign.content);
    let template = ledger.templates().get(&place);
    let versions = template.into_iter().flat_map(|template| &template.versions).map(|version| version.content);
    let contents = schedule.into_iter().chain(campaign).chain(versions);
    let with_files = contents.filter(|content| ledger.attached_files(content).next().is_some());
    let read = with_files.filter_map(|content| Content::from_blob(ledger.blob(&content)?));
    read.flat_map(|content| content.attachments).map(|attachment| (attachment.file, attachment.size)).collect()
}
