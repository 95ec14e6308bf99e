//! The encoded attachments of contents: read once for many emails, and bounded in memory (P20).
//!
//! `composition.rs` asks before it journals `composing`: only bytes are hashed and encoded here. One budget limits the memory
//! of attachments, in use and cached. An email that gets no memory in time becomes pending again, uncounted.

use std::sync::Arc;

use reveille_ledger::content::Content;
use reveille_ledger::ids::Hash;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::compose::{encode_attachments, end_len};
use crate::file_store::FileStoreError;
use crate::process::cache::Cache;
use crate::process::context::NodeContext;
use crate::smtp::EmailText;

/// Memory for encoded attachments, in KiB: of 18 contents of the largest size.
const MEMORY_KIB: usize = 256 * 1024;
/// Bytes that are kept although no email uses them. What is in use always finds the other half.
const KEPT_BYTES_MAX: usize = MEMORY_KIB * 1024 / 2;
/// Contents that are read at a time. It bounds the threads that can hang on a disk.
const READS_MAX: usize = 4;

/// The attachments of one content as they end its emails, and their memory.
pub(crate) struct EncodedAttachments {
    pub text: Arc<EmailText>,
    _memory: OwnedSemaphorePermit,
}

/// Encoded attachments by content.
pub(crate) struct AttachmentCache {
    kept: Cache<Hash, EncodedAttachments>,
    memory: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl AttachmentCache {
    pub fn new() -> AttachmentCache {
        let memory = Arc::new(Semaphore::new(MEMORY_KIB));
        AttachmentCache { kept: Cache::new(KEPT_BYTES_MAX), memory, reads: Arc::new(Semaphore::new(READS_MAX)) }
    }

    /// Returns the encoded attachments of a content. Waits for memory and for the disk; the caller bounds the wait.
    ///
    /// # Errors
    /// Returns why they cannot be read on this node.
    pub async fn get(
        self: &Arc<Self>,
        node: &Arc<NodeContext>,
        content: Hash,
    ) -> Result<Arc<EncodedAttachments>, String> {
        if let Some(known) = self.kept.known(content) {
            return Ok(known);
        }
        let read = self.reads.clone().acquire_owned().await.map_err(|closed| closed.to_string())?;
        if let Some(known) = self.kept.known(content) {
            return Ok(known);
        }
        let blob = node.replica.read(|ledger| ledger.blob(&content).and_then(Content::from_blob));
        let attachments = blob.ok_or("the content of the run is not in the ledger")?.attachments;
        let bytes = end_len(&attachments);
        let kib = bytes.div_ceil(1024).min(MEMORY_KIB) as u32;
        let memory = self.memory.clone().acquire_many_owned(kib).await.map_err(|closed| closed.to_string())?;
        let (cache, own) = (Arc::clone(self), Arc::clone(node));
        let encode = move || {
            let _read = read;
            cache.kept.get(content, || {
                let with_bytes = |one: reveille_ledger::content::Attachment| {
                    let bytes = own.files.attachment(one.file)?;
                    Ok((one, bytes))
                };
                let files: Result<Vec<_>, FileStoreError> = attachments.into_iter().map(with_bytes).collect();
                let end = encode_attachments(&files.map_err(|fault| format!("an attachment: {fault}"))?, &content.0);
                let text = EmailText::new(end).ok_or("the attachments have a line end that is not CRLF")?;
                Ok::<_, String>((EncodedAttachments { text: Arc::new(text), _memory: memory }, bytes))
            })
        };
        node.replica.blocking(encode).await.map_err(|error| error.to_string())?
    }
}
