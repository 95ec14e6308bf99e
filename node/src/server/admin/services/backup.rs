//! Makes a backup, and streams the progress.

use std::time::Duration;

use reveille_cluster::backup::{self, BackupError, BackupProgress, MadeBackup};
use reveille_proto::admin::v1::{self, CreateBackupRequest, CreateBackupResponse, ErrorReason};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::watch::{Watched, Watcher};
use crate::server::admin::enums::OnWire;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, views};

/// Minimum time between two messages.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// Messages that wait for a caller.
const WAITING_MAX: usize = 1;

serve! {
    backup_service_server::BackupService {
        [type CreateBackupStream = Watched<CreateBackupResponse>]
        cluster create_backup(CreateBackupRequest) -> Watched<CreateBackupResponse>;
    }
}

impl Admin {
    async fn create_backup(
        &self,
        _request: CreateBackupRequest,
        call: &Call,
    ) -> ApiResult<Watched<CreateBackupResponse>> {
        // The backup is not made by an entry of this caller, so a fresh read checks the token.
        self.read_latest(call, |_| ()).await?;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let (progress, seen) = watch::channel(None);
        let (context, stop) = (self.context.clone(), self.stop.clone());
        tokio::spawn(async move {
            let reporting = tokio::spawn(report(seen, sender.clone()));
            let created = backup::make(&context, progress, stop).await;
            let last = created.map(last).map_err(|error| not_made(&error).into());
            reporting.abort();
            // The caller may be gone: the backup is there nevertheless.
            let _ = sender.send(last).await;
        });
        Ok(ReceiverStream::new(receiver))
    }
}

/// Sends the progress until the backup ends, or the caller is gone.
async fn report(mut seen: watch::Receiver<Option<BackupProgress>>, caller: Watcher<CreateBackupResponse>) {
    while seen.changed().await.is_ok() {
        let Some(BackupProgress { phase, done, of }) = *seen.borrow_and_update() else { continue };
        let phase = phase.wire();
        if caller.send(Ok(CreateBackupResponse { phase: phase.into(), done, of, backup: None })).await.is_err() {
            return;
        }
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

fn not_made(error: &BackupError) -> ApiError {
    let help = match error {
        BackupError::Unavailable(_) | BackupError::Stopped => "; ask another node",
        BackupError::Target { .. } => "; make the target of backups writable for this node",
        _ => "",
    };
    ApiError::new(Code::FailedPrecondition, ErrorReason::NoBackup, format!("no backup was made: {error}{help}"))
}

fn last(created: MadeBackup) -> CreateBackupResponse {
    let MadeBackup { id, ledger_time, bytes, files, lost, copied_files, copied_bytes } = created;
    let backup = v1::Backup {
        cluster: id.cluster.to_string(),
        index: id.index,
        ledger_time: Some(views::timestamp(ledger_time)),
        bytes,
        files,
        copied_files,
        copied_bytes,
        lost_files: lost.len() as u32,
    };
    CreateBackupResponse { backup: Some(backup), ..CreateBackupResponse::default() }
}
