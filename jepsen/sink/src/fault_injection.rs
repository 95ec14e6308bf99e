//! Injects faults into a dialogue. A fault that changes a reply is returned as [`FaultReply`]; a fault that ends or
//! delays the dialogue takes effect here.

use std::time::Duration;

use crate::dialogue::Dialogue;
use crate::faults::{FaultKind, FaultReply, FaultStage};
use crate::wire::{DialogueEnd, Patience};

impl Dialogue {
    /// Decides if a fault is injected at this stage, and injects it.
    pub(crate) async fn inject_fault(&mut self, stage: FaultStage) -> Result<FaultReply, DialogueEnd> {
        match self.sink.fault_chooser.choose(stage, self.emails) {
            None => Ok(FaultReply::Nothing),
            Some(kind) => self.act_on_fault(stage, kind).await,
        }
    }

    /// Injects this fault at this stage.
    pub(crate) async fn act_on_fault(&mut self, stage: FaultStage, kind: FaultKind) -> Result<FaultReply, DialogueEnd> {
        tracing::debug!(connection = self.entry.connection, ?stage, ?kind, "a fault is injected");
        match kind {
            FaultKind::Refuse { code, text } => {
                Ok(FaultReply::Refuse(code, text.unwrap_or_else(|| plain_text(stage, code))))
            }
            FaultKind::Bare => Ok(FaultReply::Bare),
            FaultKind::Huge { bytes } => Ok(FaultReply::Huge(bytes)),
            FaultKind::Stall(length) => self.stall(stage, length).await.map(|()| FaultReply::Nothing),
            FaultKind::Close | FaultKind::CloseAfter { .. } => Err(DialogueEnd::Closed("a fault")),
            FaultKind::Reset => {
                self.wire.flush().await?;
                Err(DialogueEnd::Reset)
            }
        }
    }

    /// Delays the dialogue. Between the dot and the commit a relay does not notice that its client has left, and
    /// commits the email anyway.
    async fn stall(&mut self, stage: FaultStage, length: Option<Duration>) -> Result<(), DialogueEnd> {
        let patience = match (stage, length) {
            (FaultStage::BeforeCommit, Some(_)) => Patience::InAnyCase,
            _ => Patience::WhileTheClientStays,
        };
        self.wire.wait_for(std::future::pending::<()>(), length, patience).await
    }

    /// Sends a banner of about this many bytes in lines of legal length.
    pub(crate) async fn huge_banner(&mut self, bytes: u32) -> Result<(), DialogueEnd> {
        let line = format!("220-{}\r\n", "x".repeat(494));
        let lines = u64::from(bytes).div_ceil(500);
        for number in 1..=lines {
            self.wire.put_bytes(line.as_bytes());
            if number % 128 == 0 {
                self.wire.flush().await?;
            }
        }
        Ok(())
    }
}

/// Returns the default text of a refusal. At RCPT and after the dot the text concerns the mailbox (x.2.x), elsewhere
/// the system (x.3.x), as in RFC 3463.
fn plain_text(stage: FaultStage, code: u16) -> String {
    let subject = match stage {
        FaultStage::Rcpt | FaultStage::BeforeCommit => 2,
        _ => 3,
    };
    format!("{}.{subject}.0 refused on purpose", code / 100)
}
