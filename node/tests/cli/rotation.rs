//! `cluster ca …`: requests and output.

use std::sync::atomic::{AtomicUsize, Ordering};

use reveille_proto::admin::v1::{
    Authority, AuthorityWait, AuthorityWaitReason, GetAuthorityResponse, RotateAuthorityRequest,
    RotateAuthorityResponse, RotationStep,
};
use serde_json::json;

use crate::fake::{Fake, one, unknown};

fn authority(fingerprint: &str, step: RotationStep, waits_for: &[(&str, AuthorityWaitReason)]) -> Authority {
    let wait = |(member, reason): &(&str, AuthorityWaitReason)| AuthorityWait {
        member: (*member).to_owned(),
        reason: (*reason).into(),
    };
    Authority {
        fingerprint: fingerprint.to_owned(),
        next_fingerprint: if step == RotationStep::Unspecified { String::new() } else { "bb".to_owned() },
        step: step.into(),
        waits_for: waits_for.iter().map(wait).collect(),
    }
}

/// Starts a fake cluster that answers each request of a rotation with the next of these; the last one stays.
async fn fake(answers: Vec<Authority>) -> Fake {
    let requested = AtomicUsize::new(0);
    Fake::start(move |method, _| match method {
        "GetAuthority" => {
            one(GetAuthorityResponse { authority: Some(authority("aa", RotationStep::Unspecified, &[])) })
        }
        "RotateAuthority" => {
            let place = requested.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
            one(RotateAuthorityResponse { authority: answers.get(place).cloned() })
        }
        other => Err(unknown(other)),
    })
    .await
}

#[tokio::test]
async fn rotation_is_confirmed_and_repeated_until_no_member_is_waited_for() {
    let fake = fake(vec![
        authority("aa", RotationStep::Adding, &[("b", AuthorityWaitReason::TrustsFormer)]),
        authority("aa", RotationStep::Using, &[("c", AuthorityWaitReason::UsesFormer)]),
        authority("bb", RotationStep::Unspecified, &[("c", AuthorityWaitReason::KnowsOther)]),
        authority("bb", RotationStep::Unspecified, &[]),
    ])
    .await;
    let unconfirmed = fake.reveille("cluster ca rotate").await;
    assert!(unconfirmed.code == Some(2) && unconfirmed.stderr.contains("aa"), "{unconfirmed:?}");
    let rotated = fake.reveille("cluster ca rotate --yes -o json").await;
    let authority = json!({
        "fingerprint": "bb", "nextFingerprint": "", "step": "ROTATION_STEP_UNSPECIFIED", "waitsFor": [],
    });
    assert_eq!(rotated.json(), json!({"authority": authority}));
    for step in ["trust the new authority too", "use the new authority", "forget the former authority"] {
        assert_eq!(rotated.stderr.matches(step).count(), 1, "{rotated:?}");
    }
    let requested: Vec<RotateAuthorityRequest> = fake.requests("RotateAuthority");
    assert_eq!(requested.len(), 4);
    assert!(requested.iter().all(|request| request.replaces == "aa"), "a repeat begins no second rotation");
}

#[tokio::test]
async fn rotation_that_waits_names_the_member_and_what_helps() {
    let fake = fake(vec![authority("aa", RotationStep::Adding, &[("c", AuthorityWaitReason::Silent)])]).await;
    let waits = fake.reveille("cluster ca rotate --yes --timeout 1s").await;
    assert_eq!(waits.code, Some(1), "{waits:?}");
    assert!(waits.stderr.contains("the rotation waits: c does not answer"), "{waits:?}");
    assert!(waits.stderr.contains("the same command goes on"), "{waits:?}");
    let status = fake.reveille("cluster ca status -o json").await.json();
    assert_eq!(status["step"], json!("ROTATION_STEP_UNSPECIFIED"));
}
